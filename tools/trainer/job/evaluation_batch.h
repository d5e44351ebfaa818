// Evaluation batch: how many samples a replica evaluates at a time.

#ifndef TANDEM_TOOLS_TRAINER_JOB_EVALUATION_BATCH_H_
#define TANDEM_TOOLS_TRAINER_JOB_EVALUATION_BATCH_H_

#include <cstdint>

#include "datasets/dataset.h"
#include "tools/trainer/settings/options.h"

namespace tandem {

// Of `test`; `training`: what the replica has of a step. As much, unless the
// options say otherwise: memory is no more then than in training. But of small
// samples so many that their inputs take a MiB, or 256: each batch ends with a
// wait for its device, which takes longer than a few of them do. Not of tokens,
// whose outputs are a vocabulary's size larger than they are: where nothing is
// trained, and `training` is what nobody has tried, fewer of them, so that
// their logits take 256 MiB at most, or one.
int64_t EvaluationBatchSize(const TrainOptions& options, int64_t training,
                            const Dataset& test);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_JOB_EVALUATION_BATCH_H_
