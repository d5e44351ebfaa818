// Job plan: what is known of a job before it has ranks and devices: its data,
// its model, where that is cut, and its steps.

#ifndef TANDEM_TOOLS_TRAINER_DRY_RUN_JOB_PLAN_H_
#define TANDEM_TOOLS_TRAINER_DRY_RUN_JOB_PLAN_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/checkpoint/tensor_stream.h"
#include "core/launch/launch.h"
#include "core/meta/shapes.h"
#include "tools/trainer/checkpoints/resume.h"
#include "tools/trainer/job/job.h"
#include "tools/trainer/job/optimizer_groups.h"
#include "tools/trainer/job/partition.h"
#include "tools/trainer/settings/options.h"
#include "tools/trainer/training_set.h"

namespace tandem {

struct JobPlan {
  Job job;               // without a strategy, and connected with nobody
  std::string strategy;  // its name
  std::vector<std::string> layers;
  std::vector<TensorShape> shapes;  // what the layers have
  // The same of the first of the ranks that share them (--tensor).
  std::vector<TensorShape> rank_shapes;
  PlannedPartition partition;
  TrainingPlan training;  // of a job that trains
  // Where it starts; and what is known of that, for a person.
  TrainPosition start;
  std::vector<std::string> start_lines;
  OptimizerGroups groups;
  std::string exempt_from_decay;  // see DescribeExempt
};

// Opens data, reads a batch of it, and makes the model without its values, as
// the job would; errors are those of the job. Nothing is computed, and nothing
// is written. Requires what CheckJob accepts. `first`: the place of the first
// rank.
absl::StatusOr<JobPlan> PlanJob(const TrainOptions& options,
                                const Launch& first);

// The whole model's tensors, by the names that checkpoints have: a tied weight
// has several.
std::vector<TensorInfo> WholeModel(const JobPlan& plan);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_DRY_RUN_JOB_PLAN_H_
