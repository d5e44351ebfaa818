#include "tools/bench/comparison/run.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "core/base/status_macros.h"
#include "core/process/process_end.h"
#include "core/process/subprocess.h"
#include "tools/bench/process/program.h"
#include "tools/bench/process/side.h"

namespace tandem {
namespace {

constexpr char kProgram[] = "tools/bench/rank/rank";
constexpr char kScript[] = "tools/bench/peers/peer.py";

// What tandem's ranks and the peers' take alike.
std::vector<std::string> Flags(const Case& bench,
                               const ComparisonOptions& options) {
  return {"--model=" + bench.workload.model,
          "--inputs=" + options.folder + "/inputs.safetensors",
          "--optimizer=" + bench.workload.optimizer,
          "--dtype=" + bench.workload.dtype,
          absl::StrCat("--learning_rate=", bench.workload.learning_rate),
          absl::StrCat("--threads=", options.threads),
          "--device=" + options.device,
          absl::StrCat("--allow_tf32=", options.allow_tf32 ? "true" : "false")};
}

// What only those who make models need: peers see it from the weights.
std::string InputShape(const Workload& workload) {
  return "--input_shape=" + absl::StrJoin(workload.input_shape, ",");
}

// The program and what it alone takes.
absl::StatusOr<std::vector<std::string>> RankCommand(
    Program program, const Case& bench, const Layout& layout,
    const ComparisonOptions& options) {
  if (program == Program::kTandem) {
    TANDEM_ASSIGN_OR_RETURN(const std::string path, Runfile(kProgram));
    return std::vector<std::string>{path, "--backend=" + options.backend,
                                    absl::StrCat("--devices=", layout.devices),
                                    InputShape(bench.workload)};
  }
  TANDEM_ASSIGN_OR_RETURN(const std::string python, options.python);
  TANDEM_ASSIGN_OR_RETURN(const std::string script, Runfile(kScript));
  return std::vector<std::string>{"/usr/bin/env", python, script};
}

Layout ProgramLayout(Program program, const Layout& ours) {
  if (program == Program::kTandem) return ours;
  return program == Program::kOneProcess ? Layout() : ours.OverRanks();
}

absl::StatusOr<std::unique_ptr<Side>> StartSide(
    const std::string& name, Program program, const Case& bench,
    const ComparisonOptions& options) {
  const Layout layout = ProgramLayout(program, bench.layout);
  SideOptions side;
  side.name = name;
  side.ranks = layout.ranks();
  side.binds_cores = options.device == "cpu";
  side.folder = options.folder;
  side.environment = SideEnvironment(options);
  TANDEM_ASSIGN_OR_RETURN(side.command,
                          RankCommand(program, bench, layout, options));
  side.command.push_back(absl::StrCat("--pipe=", layout.pipe));
  for (std::string& flag : Flags(bench, options)) {
    side.command.push_back(std::move(flag));
  }
  return Side::Start(side);
}

}  // namespace

absl::Status CheckOptions(const ComparisonOptions& options) {
  TANDEM_RETURN_IF_ERROR(CheckAtLeast("threads", options.threads, 1));
  TANDEM_RETURN_IF_ERROR(CheckAtLeast("rounds", options.rounds, 1));
  return CheckAtLeast("steps", static_cast<int>(options.steps), 0);
}

Environment SideEnvironment(const ComparisonOptions& options) {
  Environment environment = Environment::OfProcess();
  environment.Set("OMP_NUM_THREADS", absl::StrCat(options.threads));
  environment.Set("GLOO_SOCKET_IFNAME", "lo");
  environment.Set("TORCHINDUCTOR_CACHE_DIR", options.folder + "/inductor");
  environment.Set("PYTHONDONTWRITEBYTECODE", "1");
  return environment;
}

absl::StatusOr<ComparisonOptions> InOwnFolder(ComparisonOptions options,
                                              const std::string& name) {
  TANDEM_ASSIGN_OR_RETURN(
      options.folder,
      FolderFor(absl::StrReplaceAll(name, {{"/", "_"}}), options.folder));
  return options;
}

absl::Status WriteInputs(const Case& bench, const ComparisonOptions& options) {
  SubprocessOptions process;
  TANDEM_ASSIGN_OR_RETURN(process.program, Runfile(kProgram));
  process.argv = {process.program, "--write_inputs",
                  absl::StrCat("--batch_size=", bench.workload.batch_size),
                  InputShape(bench.workload)};
  for (std::string& flag : Flags(bench, options)) {
    process.argv.push_back(std::move(flag));
  }
  process.environment = SideEnvironment(options).ToStrings();
  TANDEM_ASSIGN_OR_RETURN(Subprocess writer, Subprocess::Start(process));
  const auto end = writer.Wait(std::chrono::minutes(2));
  if (end == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(
      "writing weights and batches: ",
      end.has_value() ? DescribeEnd(*end) : "takes longer than it may"));
}

Contender StartContender(const std::string& name, Program program,
                         const Case& bench, const ComparisonOptions& options) {
  absl::FPrintF(stderr, "%s: starting %s\n", bench.workload.model, name);
  absl::StatusOr<std::unique_ptr<Side>> side =
      StartSide(name, program, bench, options);
  if (!side.ok()) return Contender(name, side.status());
  const Layout layout = ProgramLayout(program, bench.layout);
  return Contender(name, *std::move(side), layout.replicas);
}

absl::StatusOr<ComparisonOptions> OptionsFromFlags(const BenchFlags& flags,
                                                   int usual_rounds,
                                                   const std::string& folder) {
  ComparisonOptions options;
  options.threads = flags.threads;
  options.rounds = flags.rounds.value_or(usual_rounds);
  options.steps = flags.steps.value_or(0);
  options.folder = folder;
  TANDEM_RETURN_IF_ERROR(CheckOptions(options));
  options.python = PythonFromFlag(flags.python);
  return options;
}

absl::StatusOr<std::vector<Case>> CasesFromFlags(const std::vector<Case>& all,
                                                 const BenchFlags& flags) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<Case> cases,
                          CasesNamed(all, flags.cases));
  return InDtypes(cases, flags.dtypes);
}

namespace {

// Only a process that fails may: other losses are an error of whoever has them.
bool IsItsOwnFailure(const absl::Status& status) {
  return absl::IsAborted(status) || absl::IsDeadlineExceeded(status);
}

class CaseRun {
 public:
  CaseRun(const Case& bench, KnownLosses losses,
          const ComparisonOptions& options)
      : bench_(bench), options_(options), losses_(std::move(losses)) {}

  absl::StatusOr<CaseResult> Run(const std::vector<Peer>& peers,
                                 FurtherMeasurements further) {
    TANDEM_RETURN_IF_ERROR(WriteInputs(bench_, options_));
    TANDEM_RETURN_IF_ERROR(Start(
        {"tandem", Program::kTandem, bench_.ours, /*may_fail=*/false}, true));
    for (const Peer& peer : peers) {
      TANDEM_RETURN_IF_ERROR(Start(peer, /*records=*/false));
    }
    absl::FPrintF(stderr, "%s: losses agree; measuring\n", bench_.name);
    TANDEM_RETURN_IF_ERROR(Measure(further));
    CaseResult result;
    result.bench = bench_;
    result.ours = contenders_.front().TakeResult();
    for (size_t i = 1; i < contenders_.size(); ++i) {
      result.peers.push_back(contenders_[i].TakeResult());
    }
    return result;
  }

 private:
  absl::Status Start(const Peer& who, bool records) {
    contenders_.push_back(
        StartContender(who.name, who.program, bench_, options_));
    Contender& contender = contenders_.back();
    absl::Status started = contender.status();
    if (started.ok()) {
      started = contender.Choose(who.settings, bench_.workload.compared_steps,
                                 records, losses_);
    }
    return who.may_fail && IsItsOwnFailure(started) ? absl::OkStatus()
                                                    : started;
  }

  absl::Status Measure(FurtherMeasurements further) {
    std::vector<Contender*> all;
    for (Contender& each : contenders_) all.push_back(&each);
    const int64_t steps = options_.StepsPerRound(bench_.workload);
    TANDEM_RETURN_IF_ERROR(
        TakeTurns(options_.rounds, all,
                  [&](Contender& each) { return each.MeasureStep(steps); }));
    TANDEM_RETURN_IF_ERROR(TakeTurns(
        1, all, [](Contender& each) { return each.MeasureMemory(); }));
    TANDEM_RETURN_IF_ERROR(further(all));
    // What runs on a GPU has no products to call on a core.
    return options_.device == "cpu" ? all.front()->MeasureFloor()
                                    : absl::OkStatus();
  }

  const Case& bench_;
  const ComparisonOptions& options_;
  KnownLosses losses_;
  std::vector<Contender> contenders_;  // tandem's first
};

}  // namespace

std::vector<Peer> RecipePeers(const std::vector<std::string>& recipes,
                              Program program,
                              const std::vector<std::string>& may_fail) {
  std::vector<Peer> peers;
  for (const std::string& recipe : recipes) {
    peers.push_back({recipe, program, WithRecipe({Setting()}, recipe),
                     absl::c_linear_search(may_fail, recipe)});
  }
  return peers;
}

absl::StatusOr<CaseResult> RunCase(const Case& bench,
                                   const std::vector<Peer>& peers,
                                   KnownLosses losses,
                                   const ComparisonOptions& options,
                                   FurtherMeasurements further) {
  TANDEM_ASSIGN_OR_RETURN(const ComparisonOptions own,
                          InOwnFolder(options, bench.name));
  return CaseRun(bench, std::move(losses), own).Run(peers, further);
}

absl::StatusOr<CaseResult> RunCase(const Case& bench,
                                   const std::vector<Peer>& peers,
                                   KnownLosses losses,
                                   const ComparisonOptions& options) {
  return RunCase(
      bench, peers, std::move(losses), options,
      [](const std::vector<Contender*>&) { return absl::OkStatus(); });
}

absl::StatusOr<std::vector<CaseResult>> RunCases(const std::vector<Case>& cases,
                                                 const std::vector<Peer>& peers,
                                                 const BenchFlags& flags,
                                                 int usual_rounds,
                                                 const std::string& folder) {
  TANDEM_ASSIGN_OR_RETURN(ComparisonOptions options,
                          OptionsFromFlags(flags, usual_rounds, folder));
  TANDEM_RETURN_IF_ERROR(options.python.status());
  options.backend = flags.backend;
  std::vector<CaseResult> results;
  for (const Case& bench : cases) {
    TANDEM_ASSIGN_OR_RETURN(
        results.emplace_back(),
        RunCase(bench, peers, KnownLosses(bench.workload.dtype), options));
  }
  return results;
}

}  // namespace tandem
