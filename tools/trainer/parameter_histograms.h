// Histograms of parameters and of their gradients, for --histograms_every.

#ifndef TANDEM_TOOLS_TRAINER_PARAMETER_HISTOGRAMS_H_
#define TANDEM_TOOLS_TRAINER_PARAMETER_HISTOGRAMS_H_

#include "absl/status/statusor.h"
#include "core/tensorboard/summary.h"
#include "tools/trainer/job/job.h"

namespace tandem {

// weights/NAME and gradients/NAME of the whole model's parameters, as the first
// replica has them: on rank 0, and nothing on other ranks. After a step for
// which Strategy::MeasureGradientNorm was called: gradients are those of that
// step, as the optimizers have left them. What no histogram can be made of is
// left out, which the log tells once. Waits for this rank's devices.
// Collective.
absl::StatusOr<Summary> ParameterHistograms(Job& job);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_PARAMETER_HISTOGRAMS_H_
