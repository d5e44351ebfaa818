// tandem's distributed data parallel against PyTorch's, side by side.
// docs/performance.md, or --help.

#include <cstdio>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "core/base/status_macros.h"
#include "tools/bench/bench_case.h"
#include "tools/bench/bench_program.h"
#include "tools/bench/bench_report.h"
#include "tools/bench/run_case.h"
#include "tools/bench/startup.h"

ABSL_FLAG(std::vector<std::string>, cases, {},
          "Which cases: mlp_small, mlp_wide, resnet18, gpt_tiny. Empty: all.");
ABSL_FLAG(std::vector<std::string>, peers, {},
          "What tandem is compared with: eager, PyTorch's "
          "DistributedDataParallel; compile, the same under torch.compile; "
          "find_unused, tandem itself with find_unused_parameters. Empty: "
          "eager, and compile where it runs. A peer that is named must run.");
ABSL_FLAG(std::string, python, "",
          "Python that imports torch 2.11.0. Empty: $TANDEM_PEER_PYTHON, or "
          "python3.");
ABSL_FLAG(std::string, backend, "shm",
          "What moves tandem's gradients: shm or gloo; the peers use Gloo.");
ABSL_FLAG(int, ranks, 2, "Processes on each side.");
ABSL_FLAG(int, threads, 1, "Threads for each process's operators.");
ABSL_FLAG(int, rounds, 9, "How often the sides take turns.");
ABSL_FLAG(int, steps, 0, "Steps in a round. 0: as many as suit the case.");
ABSL_FLAG(bool, startup, true, "Measure the time to the first step as well.");
ABSL_FLAG(bool, profile, false,
          "Show in which operators tandem's steps spend their time.");
ABSL_FLAG(std::string, json, "", "File to write the figures to.");

namespace tandem {
namespace {

constexpr char kUsage[] =
    "Trains the same models with tandem and with Python's\n"
    "DistributedDataParallel (Gloo), from the same weights, on the same "
    "batches "
    "and\ncores, in turns, and compares the times of a step.\n\n"
    "  bench_ddp                             all cases, both peers\n"
    "  bench_ddp --cases=mlp_small --json=r  one case, figures also in a "
    "file\n";

absl::StatusOr<BenchOptions> OptionsFromFlags() {
  BenchOptions options;
  const std::vector<std::string> named = absl::GetFlag(FLAGS_peers);
  if (!named.empty()) {
    options.peers = named;
    options.compile_may_fail = false;
  }
  TANDEM_RETURN_IF_ERROR(
      CheckAmong("peers", options.peers, {"eager", "compile", "find_unused"}));
  options.backend = absl::GetFlag(FLAGS_backend);
  options.ranks = absl::GetFlag(FLAGS_ranks);
  options.threads = absl::GetFlag(FLAGS_threads);
  options.rounds = absl::GetFlag(FLAGS_rounds);
  options.steps = absl::GetFlag(FLAGS_steps);
  TANDEM_RETURN_IF_ERROR(CheckAtLeast("ranks", options.ranks, 2));
  TANDEM_RETURN_IF_ERROR(CheckAtLeast("threads", options.threads, 1));
  TANDEM_RETURN_IF_ERROR(CheckAtLeast("rounds", options.rounds, 1));
  TANDEM_RETURN_IF_ERROR(CheckAtLeast("steps", absl::GetFlag(FLAGS_steps), 0));
  TANDEM_ASSIGN_OR_RETURN(options.python,
                          PythonOfFlag(absl::GetFlag(FLAGS_python)));
  return options;
}

// A case's files are its own: ranks that meet through a file want a new one.
absl::StatusOr<CaseResult> RunInOwnFolder(const BenchCase& bench,
                                          BenchOptions options) {
  TANDEM_ASSIGN_OR_RETURN(options.folder,
                          FolderFor(bench.name, options.folder));
  return RunCase(bench, options);
}

absl::Status Show(const std::vector<CaseResult>& results,
                  const StartupResult& startup) {
  absl::PrintF("\n%s\n%s\n%s\n", SpeedTable(results), BreakdownTable(results),
               RooflineTable(results));
  if (absl::GetFlag(FLAGS_profile)) {
    for (const CaseResult& result : results) {
      absl::PrintF("%s\n", ProfileTable(result));
    }
  }
  if (startup.peer_ms > 0) {
    absl::PrintF(
        "start to first step: ours %.0f ms, torchrun %.0f ms, ratio %.3f\n",
        startup.ours_ms, startup.peer_ms, startup.ours_ms / startup.peer_ms);
  }
  return WriteJson(absl::GetFlag(FLAGS_json), BenchJson(results, startup));
}

absl::Status Run(const std::string& folder) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<BenchCase> cases,
                          CasesNamed(absl::GetFlag(FLAGS_cases)));
  TANDEM_ASSIGN_OR_RETURN(BenchOptions options, OptionsFromFlags());
  options.folder = folder;
  std::vector<CaseResult> results;
  for (const BenchCase& bench : cases) {
    TANDEM_ASSIGN_OR_RETURN(results.emplace_back(),
                            RunInOwnFolder(bench, options));
  }
  StartupResult startup;
  if (absl::GetFlag(FLAGS_startup)) {
    TANDEM_ASSIGN_OR_RETURN(startup, MeasureStartup(options));
  }
  return Show(results, startup);
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  return tandem::RunBenchProgram("bench_ddp", tandem::kUsage, argc, argv,
                                 tandem::Run);
}
