// Evaluation batch: how many samples a replica evaluates at a time.

#ifndef TANDEM_TOOLS_TRAINER_JOB_EVALUATION_BATCH_H_
#define TANDEM_TOOLS_TRAINER_JOB_EVALUATION_BATCH_H_

#include <cstdint>

#include "datasets/dataset.h"
#include "tools/trainer/settings/options.h"

namespace tandem {

// The options' number; unless they have one, as many as the replica has of a
// step (`training`), since memory is no more then than in training. Two kinds
// of `test` differ:
//   Small samples, but not of tokens: so many that their inputs take a MiB, 256
//   at most, for each batch ends with a wait for its device, which takes longer
//   than a few samples do.
//   Tokens where nothing is trained, so that nobody has tried `training`: no
//   more than have logits of 256 MiB, one at least.
int64_t EvaluationBatchSize(const TrainOptions& options, int64_t training,
                            const Dataset& test);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_JOB_EVALUATION_BATCH_H_
