// What a model is trained to make small.

#ifndef TANDEM_CORE_LOSS_H_
#define TANDEM_CORE_LOSS_H_

#include <ATen/core/Tensor.h>

#include <functional>

#include "core/batch.h"

namespace tandem {

// The loss of a batch, ready for backward, and what to report of it.
struct LossResult {
  at::Tensor loss;  // scalar: the mean over the predictions
  Score score;      // `loss_sum` is a double sum of what `loss` is the mean of
};

// Differentiable in `outputs`. Throws LibTorch's exception when the two do not
// fit each other; who calls it turns that into a Status.
using LossFunction = std::function<LossResult(const at::Tensor& outputs,
                                              const at::Tensor& targets)>;

}  // namespace tandem

#endif  // TANDEM_CORE_LOSS_H_
