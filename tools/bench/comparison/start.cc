#include "tools/bench/comparison/start.h"

#include <chrono>
#include <cstdio>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "core/base/environment.h"
#include "core/base/status_macros.h"
#include "core/process/process_end.h"
#include "core/process/subprocess.h"
#include "tools/bench/process/program.h"
#include "tools/bench/process/runfile.h"
#include "tools/bench/process/side.h"

namespace tandem {
namespace {

constexpr char kProgram[] = "tools/bench/rank/rank";
constexpr char kScript[] = "tools/bench/peers/peer.py";

Environment SideEnvironment(const ComparisonOptions& options) {
  Environment environment = Environment::OfProcess();
  environment.Set("OMP_NUM_THREADS", absl::StrCat(options.threads));
  environment.Set("GLOO_SOCKET_IFNAME", "lo");
  environment.Set("TORCHINDUCTOR_CACHE_DIR", options.folder + "/inductor");
  environment.Set("PYTHONDONTWRITEBYTECODE", "1");
  return environment;
}

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
  options.python = PythonOfFlag(flags.python);
  return options;
}

absl::StatusOr<std::vector<Case>> CasesFromFlags(const std::vector<Case>& all,
                                                 const BenchFlags& flags) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<Case> cases,
                          CasesNamed(all, flags.cases));
  return InDtypes(cases, flags.dtypes);
}

}  // namespace tandem
