// Tandem's pipeline against PyTorch's, side by side. docs/performance.md, or
// --help.

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "core/base/status_macros.h"
#include "tools/bench/bench_program.h"
#include "tools/bench/cases_among.h"
#include "tools/bench/pipeline_case.h"
#include "tools/bench/pipeline_report.h"
#include "tools/bench/pipeline_sides.h"
#include "tools/bench/run_pipeline.h"

ABSL_FLAG(std::vector<std::string>, cases, {},
          "Which cases: MODEL/SCHEDULE, or MODEL for all of its schedules, of "
          "mlp_deep, gpt_tiny, resnet18. Empty: all.");
ABSL_FLAG(std::vector<std::string>, peers,
          (std::vector<std::string>{"pipelining", "single"}),
          "What tandem is compared with: pipelining, "
          "torch.distributed.pipelining over Gloo; single, one process without "
          "a pipeline.");
ABSL_FLAG(std::string, python, "",
          "Python that imports torch 2.11.0. Empty: $TANDEM_PEER_PYTHON, or "
          "python3.");
ABSL_FLAG(int, devices, 2, "Devices of the pipeline: cores.");
ABSL_FLAG(int, threads, 1, "Threads for each device's operators.");
ABSL_FLAG(int, rounds, 7, "How often the sides take turns.");
ABSL_FLAG(int, steps, 0, "Steps in a round. 0: as many as suit the case.");
ABSL_FLAG(std::string, json, "", "File to write the figures to.");

namespace tandem {
namespace {

constexpr char kUsage[] =
    "Trains the same models with tandem's pipeline and with Python's\n"
    "torch.distributed.pipelining (Gloo), from the same weights, on the same\n"
    "batches and cores, in turns, and compares the times of a step.\n\n"
    "  bench_pipeline                              all cases, both peers\n"
    "  bench_pipeline --cases=mlp_deep             one model\n"
    "  bench_pipeline --cases=gpt_tiny/1f1b --json=r\n";

absl::StatusOr<PipelineBenchOptions> OptionsFromFlags() {
  PipelineBenchOptions options;
  options.peers = absl::GetFlag(FLAGS_peers);
  TANDEM_RETURN_IF_ERROR(
      CheckAmong("peers", options.peers, {"pipelining", "single"}));
  options.layout.devices = absl::GetFlag(FLAGS_devices);
  options.threads = absl::GetFlag(FLAGS_threads);
  options.rounds = absl::GetFlag(FLAGS_rounds);
  options.steps = absl::GetFlag(FLAGS_steps);
  TANDEM_RETURN_IF_ERROR(CheckAtLeast("devices", options.layout.devices, 2));
  TANDEM_RETURN_IF_ERROR(CheckAtLeast("threads", options.threads, 1));
  TANDEM_RETURN_IF_ERROR(CheckAtLeast("rounds", options.rounds, 1));
  TANDEM_RETURN_IF_ERROR(CheckAtLeast("steps", absl::GetFlag(FLAGS_steps), 0));
  options.python = PythonOfFlag(absl::GetFlag(FLAGS_python));
  return options;
}

// A model's files are its own: ranks that meet through a file want a new one.
absl::StatusOr<PipelineResults> RunInOwnFolder(
    const std::vector<PipelineCase>& cases, PipelineBenchOptions options) {
  TANDEM_ASSIGN_OR_RETURN(options.folder,
                          FolderFor(cases.front().bench.name, options.folder));
  return RunPipelineModel(cases, options);
}

// As soon as a model is through: a run of all takes a while.
void Show(const PipelineResults& results, int devices) {
  absl::PrintF("\n%s\n%s\n%s\n%s\n", PipelineSpeedTable(results, devices),
               EfficiencyTable(results, devices), StepPartsTable(results),
               BestTable(results));
  std::fflush(stdout);
}

absl::Status Finish(const PipelineResults& results, int devices) {
  TANDEM_RETURN_IF_ERROR(
      WriteJson(absl::GetFlag(FLAGS_json), PipelineJson(results, devices)));
  if (!HasFailures(results)) return absl::OkStatus();
  return absl::UnavailableError("a peer has no figures: see above");
}

absl::Status Run(const std::string& folder) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<PipelineCase> cases,
                          PipelineCasesNamed(absl::GetFlag(FLAGS_cases)));
  TANDEM_ASSIGN_OR_RETURN(PipelineBenchOptions options, OptionsFromFlags());
  options.folder = folder;
  PipelineResults results;
  for (const std::vector<PipelineCase>& model : ByModel(cases)) {
    TANDEM_ASSIGN_OR_RETURN(PipelineResults its,
                            RunInOwnFolder(model, options));
    Show(its, options.layout.devices);
    std::move(its.cases.begin(), its.cases.end(),
              std::back_inserter(results.cases));
    std::move(its.unavailable.begin(), its.unavailable.end(),
              std::back_inserter(results.unavailable));
  }
  return Finish(results, options.layout.devices);
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  return tandem::RunBenchProgram("bench_pipeline", tandem::kUsage, argc, argv,
                                 tandem::Run);
}
