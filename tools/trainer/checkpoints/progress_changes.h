// Progress changes: what a job that goes on from a checkpoint does in another
// way than the one that saved it.

#ifndef TANDEM_TOOLS_TRAINER_CHECKPOINTS_PROGRESS_CHANGES_H_
#define TANDEM_TOOLS_TRAINER_CHECKPOINTS_PROGRESS_CHANGES_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/checkpoint/checkpoint.h"
#include "tools/trainer/job/job.h"

namespace tandem {

// What a checkpoint keeps for these comparisons (TrainingProgress::options):
// settings that may change, by their flags; what the training set is; and by
// how many steps the learning rate goes. Checkpoints that were written before
// some of it was kept are not compared by that.
std::map<std::string, std::string> ComparedOptions(const Job& job);

// Settings that are others now, "--weight_decay=0.3 (0.1 then)", and a cosine
// schedule that ends elsewhere: lines for a person.
std::vector<std::string> DescribeChanges(const TrainingProgress& progress,
                                         const Job& job);

// Whether the training set is another one. Then there is no going on in the
// midst of an epoch, whose order is another, too: InvalidArgument.
bool HasOtherData(const TrainingProgress& progress, const Job& job);
absl::Status CheckData(const std::string& path,
                       const TrainingProgress& progress, const Job& job);

// `status`, of an optimizer that has no place for what the checkpoint at `path`
// has of one, or lacks it: with the flags that say so.
absl::Status ExplainOptimizerState(const absl::Status& status,
                                   const std::string& path,
                                   const TrainingProgress& progress,
                                   const Job& job);

// "n_layer is 4 there and 3 here": of two config.json; "" where they are alike.
std::string ConfigDifferences(const std::string& there,
                              const std::string& here);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_CHECKPOINTS_PROGRESS_CHANGES_H_
