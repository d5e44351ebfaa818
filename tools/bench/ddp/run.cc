#include "tools/bench/run_case.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/environment.h"
#include "core/base/status_macros.h"
#include "core/process/process_end.h"
#include "tools/bench/answers.h"
#include "tools/bench/compare_losses.h"
#include "tools/bench/median.h"
#include "tools/bench/runfile.h"
#include "tools/bench/side.h"

namespace tandem {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

// torch.compile takes up to a minute on an idle machine.
constexpr milliseconds kFirstSteps = std::chrono::minutes(5);
constexpr milliseconds kRound = std::chrono::minutes(2);
constexpr int kLocalRounds = 3;
constexpr int kProfiledSteps = 3;

constexpr char kOurs[] = "tandem";
constexpr char kCompile[] = "compile";
constexpr char kFindUnused[] = "find_unused";

// A peer says its own loss, tandem that of the global batch on every rank.
std::vector<double> MeanLosses(const std::vector<json>& answers) {
  std::vector<double> means = SumOfLists(answers, "losses");
  for (double& each : means) each /= static_cast<double>(answers.size());
  return means;
}

Environment SideEnvironment(const BenchOptions& options) {
  Environment environment = Environment::OfProcess();
  environment.Set("OMP_NUM_THREADS", absl::StrCat(options.threads));
  environment.Set("GLOO_SOCKET_IFNAME", "lo");
  environment.Set("TORCHINDUCTOR_CACHE_DIR", options.folder + "/inductor");
  environment.Set("PYTHONDONTWRITEBYTECODE", "1");
  return environment;
}

// Where both sides read weights and batches.
std::string InputsPath(const BenchOptions& options) {
  return options.folder + "/inputs.safetensors";
}

absl::Status WriteInputs(const BenchCase& bench, const BenchOptions& options) {
  SubprocessOptions process;
  TANDEM_ASSIGN_OR_RETURN(process.program, Runfile("tools/bench/ddp_rank"));
  process.argv = {process.program, "--write_inputs", "--model=" + bench.name,
                  absl::StrCat("--ranks=", options.ranks),
                  "--inputs=" + InputsPath(options)};
  process.environment = SideEnvironment(options).ToStrings();
  TANDEM_ASSIGN_OR_RETURN(Subprocess writer, Subprocess::Start(process));
  const auto end = writer.Wait(kRound);
  if (end == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(
      "writing weights and batches: ",
      end.has_value() ? DescribeEnd(*end) : "takes longer than it may"));
}

absl::StatusOr<std::unique_ptr<Side>> StartSide(const std::string& name,
                                                const BenchCase& bench,
                                                const BenchOptions& options) {
  SideOptions side;
  side.name = name;
  side.ranks = options.ranks;
  side.folder = options.folder;
  side.environment = SideEnvironment(options);
  if (name == kOurs || name == kFindUnused) {
    TANDEM_ASSIGN_OR_RETURN(const std::string program,
                            Runfile("tools/bench/ddp_rank"));
    side.command = {program, "--backend=" + options.backend};
    if (name == kFindUnused) {
      side.command.push_back("--find_unused_parameters");
    }
  } else {
    TANDEM_ASSIGN_OR_RETURN(const std::string script,
                            Runfile("tools/bench/peers/ddp_peer.py"));
    side.command = {"/usr/bin/env", options.python, script,
                    "--optimizer=" + bench.optimizer,
                    absl::StrCat("--learning_rate=", bench.learning_rate)};
    if (name == kCompile) side.command.push_back("--compile");
  }
  side.command.push_back("--model=" + bench.name);
  side.command.push_back("--inputs=" + InputsPath(options));
  side.command.push_back(absl::StrCat("--threads=", options.threads));
  return Side::Start(side);
}

// A side that runs, with what is known of it so far.
struct Contender {
  std::vector<double> cpu_ms;  // by round
  std::vector<double> faults;
  std::unique_ptr<Side> side;
  SideResult result;
};

absl::StatusOr<Contender> StartContender(const std::string& name,
                                         const BenchCase& bench,
                                         const BenchOptions& options) {
  absl::FPrintF(stderr, "%s: starting %s\n", bench.name, name);
  Contender contender;
  contender.result.name = name;
  TANDEM_ASSIGN_OR_RETURN(contender.side, StartSide(name, bench, options));
  const absl::StatusOr<std::vector<json>> answers = contender.side->Ask(
      absl::StrCat("losses ", bench.compared_steps), kFirstSteps);
  if (!answers.ok()) {
    if (name != kCompile || !options.compile_may_fail) return answers.status();
    contender.side.reset();
    contender.result.failure = std::string(answers.status().message());
    return contender;
  }
  contender.result.losses = MeanLosses(*answers);
  return contender;
}

absl::Status RunRound(const std::string& command, Contender& contender) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<json> answers,
                          contender.side->Ask(command, kRound));
  SideResult& result = contender.result;
  const bool local = command.rfind("local", 0) == 0;
  (local ? result.local_ms : result.step_ms).push_back(Greatest(answers, "ms"));
  if (local) return absl::OkStatus();
  contender.cpu_ms.push_back(Greatest(answers, "cpu_ms"));
  contender.faults.push_back(Greatest(answers, "faults"));
  result.cpu_ms = Median(contender.cpu_ms);
  result.faults = Median(contender.faults);
  return absl::OkStatus();
}

// The sides take turns; who begins changes, for whoever comes first finds
// another machine than who comes second.
absl::Status TakeTurns(int rounds, const std::string& command,
                       std::vector<Contender>& contenders) {
  const size_t sides = contenders.size();
  for (int round = 0; round < rounds; ++round) {
    for (size_t turn = 0; turn < sides; ++turn) {
      Contender& contender = contenders[(round + turn) % sides];
      if (contender.side == nullptr) continue;
      TANDEM_RETURN_IF_ERROR(RunRound(command, contender));
    }
  }
  return absl::OkStatus();
}

absl::Status Measure(const BenchCase& bench, const BenchOptions& options,
                     std::vector<Contender>& contenders) {
  const int64_t steps = options.steps > 0 ? options.steps : bench.steps;
  TANDEM_RETURN_IF_ERROR(
      TakeTurns(options.rounds, absl::StrCat("steps ", steps), contenders));
  for (Contender& each : contenders) {
    if (each.side == nullptr) continue;
    TANDEM_ASSIGN_OR_RETURN(const std::vector<json> answers,
                            each.side->Ask("memory", kRound));
    each.result.peak_mib = Greatest(answers, "peak_mib");
    TANDEM_ASSIGN_OR_RETURN(
        const std::vector<json> overlap,
        each.side->Ask(absl::StrCat("overlap ", steps), kRound));
    each.result.comm_ms = Greatest(overlap, "comm_ms");
    each.result.exposed_ms = Greatest(overlap, "exposed_ms");
  }
  return TakeTurns(std::min(options.rounds, kLocalRounds),
                   absl::StrCat("local ", steps), contenders);
}

absl::Status MeasureLimits(Side& ours, CaseResult& result) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<json> gemm,
                          ours.Ask("gemm", kRound));
  result.mkl_gflops = gemm.front().at("mkl_gflops");
  result.one_dnn_gflops = gemm.front().at("one_dnn_gflops");
  TANDEM_ASSIGN_OR_RETURN(const std::vector<json> all_reduce,
                          ours.Ask("all_reduce", kRound));
  result.all_reduce_ms = Greatest(all_reduce, "ms");
  result.gloo_all_reduce_ms = Greatest(all_reduce, "gloo_ms");
  TANDEM_ASSIGN_OR_RETURN(
      const std::vector<json> profile,
      ours.Ask(absl::StrCat("profile ", kProfiledSteps), kRound));
  result.profile = profile.front();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CaseResult> RunCase(const BenchCase& bench,
                                   const BenchOptions& options) {
  TANDEM_RETURN_IF_ERROR(WriteInputs(bench, options));
  std::vector<std::string> names = {kOurs};
  names.insert(names.end(), options.peers.begin(), options.peers.end());
  std::vector<Contender> contenders;
  for (const std::string& name : names) {
    TANDEM_ASSIGN_OR_RETURN(Contender contender,
                            StartContender(name, bench, options));
    if (!contenders.empty() && contender.side != nullptr) {
      TANDEM_RETURN_IF_ERROR(CompareLosses(contenders.front().result.losses,
                                           name, contender.result.losses));
    }
    contenders.push_back(std::move(contender));
  }
  absl::FPrintF(stderr, "%s: losses agree; measuring\n", bench.name);
  TANDEM_RETURN_IF_ERROR(Measure(bench, options, contenders));
  CaseResult result;
  result.bench = bench;
  TANDEM_RETURN_IF_ERROR(MeasureLimits(*contenders.front().side, result));
  for (Contender& each : contenders) {
    const bool ours = each.result.name == kOurs;
    if (ours) result.ours = std::move(each.result);
    if (!ours) result.peers.push_back(std::move(each.result));
  }
  return result;
}

}  // namespace tandem
