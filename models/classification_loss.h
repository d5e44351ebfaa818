// Cross entropy, for images and for tokens.
//
// Z-loss: a second term of a loss, which keeps logits from drifting.

#ifndef TANDEM_MODELS_CLASSIFICATION_LOSS_H_
#define TANDEM_MODELS_CLASSIFICATION_LOSS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>

#include "core/loss/loss.h"
#include "models/functions/cross_entropy/cross_entropy_function.h"

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

// torch.nn.CrossEntropyLoss, within rounding: a LossFunction.
//
// `outputs` are logits [n, classes] with int64 `targets` [n], or [n, tokens,
// classes] with [n, tokens]; targets lie in [0, classes). Every target is one
// prediction, and `loss` is the mean over them (NaN when there is none, as in
// PyTorch); logits may be bf16 (LossFunction::OfAnyPrecision). A prediction is
// correct when its greatest logit, the first of
// equals, is the target's. Throws c10::Error on shapes that do not fit and, on
// the CPU, on targets out of range. Waits for no device: the score's sums stay
// there (LossResult::sums).
LossResult CrossEntropy(const at::Tensor& outputs, const at::Tensor& targets);

// labels int64 [n].
using CrossEntropyRows = std::function<CrossEntropyResult(
    const LossArguments& arguments, const at::Tensor& labels)>;

// CrossEntropy, or with an `ignore_index` CrossEntropyIgnoring, whose rows
// `rows_of` computes from what layers have left.
LossFunction CrossEntropyOfRows(LossNames names, CrossEntropyRows rows_of,
                                std::optional<int64_t> ignore_index);

// CrossEntropy with torch.nn.CrossEntropyLoss's ignore_index, for padding, say:
// targets of this number are no predictions. They have no part in loss, score
// and gradient, and batches weigh by the targets that are left
// (LossFunction::weight). Without any left the loss is 0, and so is its
// gradient, where PyTorch's is NaN.
LossFunction CrossEntropyIgnoring(int64_t ignore_index);

// torch.nn.CrossEntropyLoss's label_smoothing e, from 0 to 1 (Szegedy et al.,
// 1512.00567, section 7): a target is 1 - e of its class and e / classes of
// each, so that a prediction's loss is
//   (1 - e) (log(Z) - x_target) + e (log(Z) - mean(x)),
// x being its logits and Z the sum of their exponentials. With an
// `ignore_index` ignored targets count as CrossEntropyIgnoring has it. Computed
// of floats. Evaluation reports the loss without it
// (LossFunction::EvaluatedBy); with 0 so does training.
LossFunction SmoothedCrossEntropy(
    double label_smoothing, std::optional<int64_t> ignore_index = std::nullopt);

}  // namespace tandem

#endif  // TANDEM_MODELS_CLASSIFICATION_LOSS_H_
