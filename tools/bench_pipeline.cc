// Tandem's pipeline against PyTorch's, side by side. docs/performance.md, or
// --help.

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
#include "tools/bench/pipeline/cases.h"
#include "tools/bench/pipeline/report.h"
#include "tools/bench/pipeline/run.h"
#include "tools/bench/process/program.h"

ABSL_FLAG(std::vector<std::string>, cases, {},
          "Which cases: MODEL/SCHEDULE, or MODEL for all of its schedules, of "
          "mlp_deep, gpt_tiny, resnet18. Empty: all.");
ABSL_FLAG(std::vector<std::string>, peers,
          (std::vector<std::string>{"pipelining", "single"}),
          "What tandem is compared with: pipelining, "
          "torch.distributed.pipelining over Gloo; single, one process without "
          "a pipeline.");
ABSL_FLAG(int, devices, 2, "Devices of the pipeline: cores.");
ABSL_FLAG(int, rounds, 7, "How often the sides take turns.");

namespace tandem {
namespace {

constexpr char kUsage[] =
    "Trains the same models with tandem's pipeline and with Python's\n"
    "torch.distributed.pipelining (Gloo), from the same weights, on the same\n"
    "batches and cores, in turns, and compares the times of a step.\n\n"
    "  bench_pipeline                              all cases, both peers\n"
    "  bench_pipeline --cases=mlp_deep             one model\n"
    "  bench_pipeline --cases=gpt_tiny/1f1b --json=r\n";

// A model's files are its own: ranks that meet through a file want a new one.
absl::StatusOr<PipelineResults> RunInOwnFolder(const std::vector<Case>& cases,
                                               ComparisonOptions options) {
  TANDEM_ASSIGN_OR_RETURN(
      options.folder, FolderFor(absl::StrCat(cases.front().workload.model, "_",
                                             cases.front().workload.dtype),
                                options.folder));
  return RunPipelineModel(cases, absl::GetFlag(FLAGS_peers), options);
}

// As soon as a model is through: a run of all takes a while.
void Show(const PipelineResults& results) {
  absl::PrintF("\n%s\n%s\n%s\n%s\n", PipelineSpeedTable(results),
               EfficiencyTable(results), StepPartsTable(results),
               BestTable(results));
  std::fflush(stdout);
}

absl::Status Finish(const PipelineResults& results) {
  TANDEM_RETURN_IF_ERROR(WriteFigures(PipelineJson(results)));
  if (!absl::c_any_of(results.cases, HasFailures)) return absl::OkStatus();
  return absl::UnavailableError("a peer has no figures: see above");
}

absl::Status Run(const std::string& folder) {
  const int devices = absl::GetFlag(FLAGS_devices);
  TANDEM_RETURN_IF_ERROR(CheckAtLeast("devices", devices, 2));
  TANDEM_RETURN_IF_ERROR(
      CheckAmong("peers", absl::GetFlag(FLAGS_peers), {kPipelining, kSingle}));
  TANDEM_ASSIGN_OR_RETURN(
      const std::vector<Case> cases,
      CasesFromFlags(PipelineCases(devices), absl::GetFlag(FLAGS_cases)));
  TANDEM_ASSIGN_OR_RETURN(ComparisonOptions options,
                          OptionsFromFlags(absl::GetFlag(FLAGS_rounds)));
  options.folder = folder;
  PipelineResults results;
  for (const std::vector<Case>& model : ByModel(cases)) {
    TANDEM_ASSIGN_OR_RETURN(PipelineResults its,
                            RunInOwnFolder(model, options));
    Show(its);
    absl::c_move(its.cases, std::back_inserter(results.cases));
    absl::c_move(its.unavailable, std::back_inserter(results.unavailable));
  }
  return Finish(results);
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  return tandem::RunBenchProgram("bench_pipeline", tandem::kUsage, argc, argv,
                                 tandem::Run);
}
