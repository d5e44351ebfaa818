// The cases of the pipeline's benchmark, each workload under each schedule:
// tandem and its peers side by side, and how well a schedule can do at best.

#ifndef TANDEM_TOOLS_BENCH_PIPELINE_RUN_H_
#define TANDEM_TOOLS_BENCH_PIPELINE_RUN_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "parallel/schedule/schedule.h"
#include "parallel/schedule/simulation.h"
#include "tools/bench/case/case.h"
#include "tools/bench/comparison/contender.h"
#include "tools/bench/comparison/run.h"

namespace tandem {

// Cases MODEL/SCHEDULE: mlp_deep (batch 128), gpt_tiny (batch 8), resnet18
// (3x64x64, batch 32), each under every schedule of
// parallel/schedule/schedules.h, with fused SGD, over the devices of one rank.
// Peers' settings are those of torch.distributed.pipelining's nearest schedule.
// Zero bubble has one that works over Gloo: it stands for ZB-V too.
std::vector<Case> PipelineCases(int devices);

// The peer's schedules that are tried for themselves, because they have failed:
// by its names.
std::vector<std::string> UnreliablePeerSchedules();
// The settings of such a schedule.
std::vector<Setting> UnreliableSettings(const std::string& schedule,
                                        const Workload& workload);

// The part of its devices' time that a schedule uses when stages take `costs`,
// and nothing is lost on the way: work / (devices x step). With equal stages
// that is what the papers' formulas say: 1F1B M / (M + S - 1).
absl::StatusOr<double> PipelineLimit(const Schedule& schedule,
                                     const std::vector<StageCost>& costs);

// The same number of stages, each the mean of these: a cut as good as it can
// be.
std::vector<StageCost> Evened(const std::vector<StageCost>& costs);

// Where the time of a step goes, in milliseconds. The parts add up to `step`.
struct StepParts {
  double step = 0;
  double whole = 0;  // one core's time for the whole batch, / devices
  // What computing in microbatches costs beyond that, a device; negative where
  // it is faster.
  double microbatching = 0;
  double bubble = 0;     // of the schedule, with equal stages
  double imbalance = 0;  // what it is more because stages differ
  double rest = 0;       // threads, messages, memory
};

struct StepMeasurements {
  double step_ms = 0;
  double alone_ms = 0;            // one core's, for the whole batch
  double optimizer_ms = 0;        // all devices at the same time
  std::vector<StageCost> stages;  // of one microbatch, in ms
};

absl::StatusOr<StepParts> SplitStepTime(const Schedule& schedule,
                                        const StepMeasurements& measured);

// What each microbatch costs beyond theory, in milliseconds:
// (step - alone / devices / limit) / microbatches.
double MicrobatchOverhead(double step_ms, double alone_ms, double limit,
                          int devices, int microbatches);

struct PipelineResult : CaseResult {
  // The limit of our schedule with our number of microbatches, when stages take
  // as long as ours on the average.
  double limit = 0;
  StepParts parts;
};

// A peer's schedule that was tried, and does not run.
struct UnavailableSchedule {
  std::string model;
  std::string schedule;
  std::string reason;
};

struct PipelineResults {
  std::vector<PipelineResult> cases;
  std::vector<UnavailableSchedule> unavailable;
};

// Peers: torch.distributed.pipelining, a process for each device; one process,
// which trains the model in one piece.
inline constexpr char kPipelining[] = "pipelining";
inline constexpr char kSingle[] = "single";

// Runs cases of one model, in a folder of its own. All contenders begin from
// the same weights and batches; each tries its settings, whose losses are
// compared before they are timed, and keeps the fastest; then they take turns.
// Prints what it does on stderr.
//
// An error when tandem itself fails. A peer that fails, or whose losses differ,
// has no figures from then on: its results say why.
absl::StatusOr<PipelineResults> RunPipelineModel(
    const std::vector<Case>& cases, const std::vector<std::string>& peers,
    const ComparisonOptions& options);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_PIPELINE_RUN_H_
