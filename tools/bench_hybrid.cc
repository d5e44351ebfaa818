// Tandem's replicas of pipelines against PyTorch's, side by side.
// docs/performance.md, or --help.

#include <cstdio>
#include <iterator>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "core/base/status_macros.h"
#include "tools/bench/case/case.h"
#include "tools/bench/comparison/flags.h"
#include "tools/bench/comparison/report.h"
#include "tools/bench/comparison/start.h"
#include "tools/bench/hybrid/cases.h"
#include "tools/bench/hybrid/report.h"
#include "tools/bench/hybrid/run.h"
#include "tools/bench/process/program.h"

ABSL_FLAG(std::vector<std::string>, cases, {},
          "Which cases: MODEL/LAYOUT, or MODEL for all of its layouts, of "
          "mlp_deep, gpt_tiny, resnet18 and 1x1, 2x1 (replicas x devices of "
          "each), 1x2, 2x2 (two ranks of two devices), 2x2_ranks (four ranks). "
          "Empty: all.");
ABSL_FLAG(int, rounds, 7, "How often the sides take turns.");
ABSL_FLAG(bool, reproducible, true,
          "Measure what --reproducible costs as well.");

namespace tandem {
namespace {

constexpr char kUsage[] =
    "Trains the same models with tandem's hybrid and with Python's\n"
    "DistributedDataParallel around torch.distributed.pipelining (Gloo), from\n"
    "the same weights, on the same batches, in turns, and compares the times "
    "of\na step; and tandem with --reproducible and without. The whole batch "
    "of a\nmodel is the same in every layout.\n\n"
    "  bench_hybrid                                 all cases\n"
    "  bench_hybrid --cases=mlp_deep                one model\n"
    "  bench_hybrid --cases=gpt_tiny/2x2 --json=r   figures also in a file\n";

// A model's files are its own: ranks that meet through a file want a new one.
absl::StatusOr<std::vector<HybridResult>> RunInOwnFolder(
    const std::vector<Case>& cases, ComparisonOptions options) {
  TANDEM_ASSIGN_OR_RETURN(
      options.folder, FolderFor(absl::StrCat(cases.front().workload.model, "_",
                                             cases.front().workload.dtype),
                                options.folder));
  return RunHybridModel(cases, absl::GetFlag(FLAGS_reproducible), options);
}

// As soon as a model is through: a run of all takes a while.
void Show(const std::vector<HybridResult>& results) {
  absl::PrintF("\n%s\n%s\n%s\n", HybridSpeedTable(results),
               ReproducibleTable(results), OverlapTable(results));
  std::fflush(stdout);
}

absl::Status Run(const std::string& folder) {
  TANDEM_ASSIGN_OR_RETURN(
      const std::vector<Case> cases,
      CasesFromFlags(HybridCases(), absl::GetFlag(FLAGS_cases)));
  TANDEM_ASSIGN_OR_RETURN(ComparisonOptions options,
                          OptionsFromFlags(absl::GetFlag(FLAGS_rounds)));
  options.folder = folder;
  std::vector<HybridResult> results;
  for (const std::vector<Case>& model : ByModel(cases)) {
    TANDEM_ASSIGN_OR_RETURN(std::vector<HybridResult> its,
                            RunInOwnFolder(model, options));
    Show(its);
    absl::c_move(its, std::back_inserter(results));
  }
  TANDEM_RETURN_IF_ERROR(WriteFigures(HybridJson(results)));
  if (!absl::c_any_of(results, HasFailures)) return absl::OkStatus();
  return absl::UnavailableError("a peer has no figures: see above");
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  return tandem::RunBenchProgram("bench_hybrid", tandem::kUsage, argc, argv,
                                 tandem::Run);
}
