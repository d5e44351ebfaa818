// Z-loss: a second term of a loss, which keeps logits from drifting.

#ifndef TANDEM_MODELS_Z_LOSS_H_
#define TANDEM_MODELS_Z_LOSS_H_

#include "core/loss/loss.h"

namespace tandem {

// `loss`, to which `coefficient` times the mean of log(Z)^2 is added, by
// AddAuxiliaryLoss and the name "z_loss" (core/loss/loss_terms.h); Z is the sum
// of exp over the logits of a prediction, the outputs' last dimension (PaLM,
// 2204.02311, section 5, with 1e-4). The mean is over all rows of logits, those
// of ignored targets, too, as it depends on no target: so parts of a batch
// weigh by their samples, where the loss's weigh by its targets.
//
// Both are computed of floats, whatever `loss` takes: a logarithm of bf16
// logits as LibTorch gives it has 3 digits, and the conversion serves the loss
// as well.
LossFunction WithZLoss(LossFunction loss, double coefficient);

}  // namespace tandem

#endif  // TANDEM_MODELS_Z_LOSS_H_
