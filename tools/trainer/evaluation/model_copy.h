// Model copy on rank 0: the layers of a job's model once more, with the weights
// that the job has by now.

#ifndef TANDEM_TOOLS_TRAINER_EVALUATION_MODEL_COPY_H_
#define TANDEM_TOOLS_TRAINER_EVALUATION_MODEL_COPY_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/model/layer.h"
#include "tools/trainer/job/job.h"

namespace tandem {

// The job's model, whole and with logits of the whole vocabulary, in evaluation
// mode, in fp32 in the host's memory. For rank 0; draws nothing that training
// would. Errors of JobLayers.
absl::StatusOr<LayerList> MakeModelCopy(const Job& job);

// The copy takes the weights that the job evaluates: averages of parameters
// with --ema_decay. Ranks other than 0 have no copy, and send what they hold:
// so it serves every layout. Collective.
absl::Status UpdateModelCopy(Job& job, const LayerList& copy);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_EVALUATION_MODEL_COPY_H_
