// How well a pipeline's step can be told from a profile of its layers: profile,
// cut, predicted time, measured time, on the cores of this process, round by
// round.
//
//   bazel run //tools/bench:pipeline_closed_loop
//
// Errors are for a reader to judge: the exit code is 0 unless something failed.
//
// Flags stand apart from whatever includes glog, whose own flags have some of
// the same names.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "core/program/command_line.h"
#include "core/program/process.h"
#include "tools/bench/case/case.h"
#include "tools/bench/measure/cores.h"
#include "tools/bench/measure/median.h"
#include "tools/bench/pipeline/cases.h"
#include "tools/bench/pipeline/closed_loop.h"

ABSL_FLAG(std::vector<std::string>, models,
          std::vector<std::string>({"mlp_deep", "gpt_tiny", "resnet18"}),
          "Models of the pipeline's benchmark.");
ABSL_FLAG(std::string, schedule, "1f1b", "As the trainer's --schedule.");
ABSL_FLAG(int, microbatches, 4, "As the trainer's --microbatches.");
ABSL_FLAG(int, weight_gradient_batch, 1,
          "As the trainer's --weight_gradient_batch; the profile is of single "
          "microbatches.");
ABSL_FLAG(int, rounds, 9, "Profiles and measurements of each model, in turn.");
ABSL_FLAG(int, steps, 8, "Steps that are measured in a round.");

namespace tandem {
namespace {

constexpr int kDevices = 2;

absl::StatusOr<ClosedLoopOptions> OptionsFor(const std::string& model) {
  ClosedLoopOptions options;
  options.schedule = absl::GetFlag(FLAGS_schedule);
  TANDEM_ASSIGN_OR_RETURN(
      const std::vector<Case> cases,
      CasesNamed(PipelineCases(kDevices),
                 {absl::StrCat(model, "/", options.schedule)}));
  options.workload = cases.front().workload;
  options.chunks = cases.front().ours.front().chunks;
  options.microbatches = absl::GetFlag(FLAGS_microbatches);
  options.weight_gradient_batch = absl::GetFlag(FLAGS_weight_gradient_batch);
  options.rounds = std::max(absl::GetFlag(FLAGS_rounds), 1);
  options.steps = std::max(absl::GetFlag(FLAGS_steps), 1);
  options.cores = CoresOf(0, kDevices, kDevices);
  return options;
}

// Of the last minute; -1 where the system does not tell.
double Load() {
  double load = -1;
  return getloadavg(&load, 1) == 1 ? load : -1;
}

// Of predictions: the median, and of their errors in rounds the median, the
// least and the greatest.
void PrintErrors(const std::vector<double>& predicted,
                 const std::vector<double>& measured) {
  std::vector<double> errors;
  for (size_t i = 0; i < predicted.size(); ++i) {
    errors.push_back(100 * (predicted[i] / measured[i] - 1));
  }
  const auto [least, most] = std::minmax_element(errors.begin(), errors.end());
  std::printf("  %9.2f %+6.1f (%+6.1f to %+6.1f)", Median(predicted),
              Median(errors), *least, *most);
}

void Print(const ClosedLoopOptions& options, const ClosedLoopResult& result) {
  std::vector<double> by_layers, by_stages, measured, optimizer;
  for (const ClosedLoopRound& round : result.rounds) {
    by_layers.push_back(round.by_layers);
    by_stages.push_back(round.by_stages);
    measured.push_back(round.measured);
    optimizer.push_back(round.optimizer);
  }
  const auto [least, most] =
      std::minmax_element(measured.begin(), measured.end());
  std::printf("%-9s %-7s %8.2f %8.2f (%8.2f to %8.2f)",
              options.workload.model.c_str(),
              absl::StrJoin(result.cuts, ",").c_str(), Median(optimizer),
              Median(measured), *least, *most);
  PrintErrors(by_stages, measured);
  PrintErrors(by_layers, measured);
  std::printf("\n");
  std::fflush(stdout);
}

absl::Status RunModels() {
  ConfigureProcess(/*intra_op_threads=*/1);
  std::printf(
      "%s, %d microbatches, %d devices of one process, a core each; sgd with "
      "momentum\nload of the machine before: %.2f\n\n",
      absl::GetFlag(FLAGS_schedule).c_str(), absl::GetFlag(FLAGS_microbatches),
      kDevices, Load());
  std::printf("ms a step, medians of %d rounds; errors are those of rounds\n",
              absl::GetFlag(FLAGS_rounds));
  std::printf("%-9s %-7s %8s %8s %22s  %9s %6s %18s  %9s %6s\n", "model", "cut",
              "sgd", "step", "", "by stages", "error%", "", "by layers",
              "error%");
  for (const std::string& model : absl::GetFlag(FLAGS_models)) {
    TANDEM_ASSIGN_OR_RETURN(const ClosedLoopOptions options, OptionsFor(model));
    TANDEM_ASSIGN_OR_RETURN(const ClosedLoopResult result,
                            RunClosedLoop(options));
    Print(options, result);
  }
  std::printf("\nload of the machine after: %.2f\n", Load());
  return absl::OkStatus();
}

absl::Status Run(int argc, char** argv) {
  TANDEM_RETURN_IF_ERROR(
      ParseCommandLine(argc, argv,
                       "Predicts a pipeline's step from a profile, and "
                       "measures it.")
          .status());
  return RunModels();
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  const absl::Status status = tandem::Run(argc, argv);
  if (status.ok()) return 0;
  std::fprintf(stderr, "pipeline_closed_loop: %s\n", status.ToString().c_str());
  return 1;
}
