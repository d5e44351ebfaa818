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
#include "tools/bench/case/case.h"
#include "tools/bench/comparison/flags.h"
#include "tools/bench/comparison/start.h"
#include "tools/bench/ddp/cases.h"
#include "tools/bench/ddp/report.h"
#include "tools/bench/ddp/run.h"
#include "tools/bench/ddp/startup.h"
#include "tools/bench/process/program.h"

ABSL_FLAG(std::vector<std::string>, cases, {},
          "Which cases: mlp_small, mlp_wide, resnet18, gpt_tiny. Empty: all.");
ABSL_FLAG(std::vector<std::string>, peers, {},
          "What tandem is compared with: eager, PyTorch's "
          "DistributedDataParallel; compile, the same under torch.compile; "
          "find_unused, tandem itself with find_unused_parameters. Empty: "
          "eager, and compile where it runs. A peer that is named must run.");
ABSL_FLAG(std::string, backend, "shm",
          "What moves tandem's gradients: shm or gloo; the peers use Gloo.");
ABSL_FLAG(int, ranks, 2, "Processes on each side.");
ABSL_FLAG(int, rounds, 9, "How often the sides take turns.");
ABSL_FLAG(bool, startup, true, "Measure the time to the first step as well.");
ABSL_FLAG(bool, profile, false,
          "Show in which operators tandem's steps spend their time.");

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

absl::StatusOr<DdpPeers> PeersFromFlags() {
  DdpPeers peers;
  const std::vector<std::string> named = absl::GetFlag(FLAGS_peers);
  if (!named.empty()) peers = {named, /*compile_may_fail=*/false};
  TANDEM_RETURN_IF_ERROR(
      CheckAmong("peers", peers.names, {"eager", "compile", "find_unused"}));
  return peers;
}

// A case's files are its own: ranks that meet through a file want a new one.
absl::StatusOr<DdpResult> RunInOwnFolder(const Case& bench,
                                         const DdpPeers& peers,
                                         ComparisonOptions options) {
  TANDEM_ASSIGN_OR_RETURN(options.folder,
                          FolderFor(bench.name, options.folder));
  return RunDdpCase(bench, peers, options);
}

absl::Status Show(const std::vector<DdpResult>& results,
                  const StartupResult& startup) {
  absl::PrintF("\n%s\n%s\n%s\n", DdpSpeedTable(results),
               BreakdownTable(results), RooflineTable(results));
  if (absl::GetFlag(FLAGS_profile)) {
    for (const DdpResult& result : results) {
      absl::PrintF("%s\n", ProfileTable(result));
    }
  }
  if (startup.peer_ms > 0) {
    absl::PrintF(
        "start to first step: ours %.0f ms, torchrun %.0f ms, ratio %.3f\n",
        startup.ours_ms, startup.peer_ms, startup.ours_ms / startup.peer_ms);
  }
  return WriteFigures(DdpJson(results, startup));
}

absl::Status Run(const std::string& folder) {
  const int ranks = absl::GetFlag(FLAGS_ranks);
  TANDEM_RETURN_IF_ERROR(CheckAtLeast("ranks", ranks, 2));
  TANDEM_ASSIGN_OR_RETURN(
      const std::vector<Case> cases,
      CasesFromFlags(DdpCases(ranks), absl::GetFlag(FLAGS_cases)));
  TANDEM_ASSIGN_OR_RETURN(const DdpPeers peers, PeersFromFlags());
  TANDEM_ASSIGN_OR_RETURN(ComparisonOptions options,
                          OptionsFromFlags(absl::GetFlag(FLAGS_rounds)));
  TANDEM_RETURN_IF_ERROR(options.python.status());
  options.backend = absl::GetFlag(FLAGS_backend);
  options.folder = folder;
  std::vector<DdpResult> results;
  for (const Case& bench : cases) {
    TANDEM_ASSIGN_OR_RETURN(results.emplace_back(),
                            RunInOwnFolder(bench, peers, options));
  }
  StartupResult startup;
  if (absl::GetFlag(FLAGS_startup)) {
    TANDEM_ASSIGN_OR_RETURN(startup, MeasureStartup(ranks, options));
  }
  return Show(results, startup);
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  return tandem::RunBenchProgram("bench_ddp", tandem::kUsage, argc, argv,
                                 tandem::Run);
}
