// Whole jobs, from a program's start to its end: tandem's trainer and a script
// of Python's that does the same, and what each part of them took.

#ifndef TANDEM_TOOLS_BENCH_JOB_RUN_H_
#define TANDEM_TOOLS_BENCH_JOB_RUN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/bench/case/workload.h"
#include "tools/bench/comparison/run.h"

namespace tandem {

// What both sides do: train on Fashion-MNIST from the same weights, in the same
// order, save a checkpoint, and evaluate the whole test set.
struct JobPlan {
  Workload workload;       // whose batch is that of all ranks together
  int ranks = 1;           // replicas
  int64_t steps = 0;       // the first ones of the epoch; 0: all of it
  int64_t log_every = 25;  // steps whose mean loss is told
};

struct JobSetup {
  // Starts the peer (tools/bench/peers/job.py); the plan's flags come behind
  // it.
  std::vector<std::string> peer;
  std::string data_dir;  // Fashion-MNIST's four files
  // Threads of each rank, and a folder in which are the initial weights
  // (WriteInputs), and in which both sides write.
  ComparisonOptions options;
};

// In seconds. Parts follow one another, and come to the whole.
struct JobRun {
  double whole_s = 0;     // from the program's start to its end
  double start_s = 0;     // until batches are asked for
  double training_s = 0;  // batches that are waited for included
  double checkpoint_s = 0;
  double evaluation_s = 0;
  double end_s = 0;
  // Its steps, each in the median's time: what it would take if nothing else
  // took any.
  double floor_s = 0;
  int64_t steps = 0;
  // Means of each `log_every` steps, and of those that are left.
  std::vector<double> losses;
  double test_loss = 0;
  double test_accuracy = 0;
};

// Runs `train`, with its defaults but for what the plan says. Internal where it
// fails.
absl::StatusOr<JobRun> RunTandem(const JobPlan& plan, const JobSetup& setup);

// Runs the peer, whose DataLoaders have so many workers each. Internal where it
// fails, or says nothing.
absl::StatusOr<JobRun> RunPeer(const JobPlan& plan, int workers,
                               const JobSetup& setup);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_JOB_RUN_H_
