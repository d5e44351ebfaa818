#include "models/z_loss.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/logsumexp.h>

#include <utility>

#include "core/loss_terms.h"

namespace tandem {

LossFunction WithZLoss(LossFunction loss, double coefficient) {
  const LossFunction::Weight weight = loss.weight();
  return LossFunction(
      [loss = std::move(loss), coefficient](const at::Tensor& outputs,
                                            const at::Tensor& targets) {
        AddLoss("z_loss",
                at::logsumexp(outputs, -1).square().mean().mul(coefficient));
        return loss(outputs, targets);
      },
      weight);
}

}  // namespace tandem
