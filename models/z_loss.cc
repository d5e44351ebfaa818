#include "models/z_loss.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/logsumexp.h>

#include <utility>

#include "core/loss/loss_terms.h"

namespace tandem {

LossFunction WithZLoss(LossFunction loss, double coefficient) {
  const LossNames names = loss.names();
  const LossFunction::Weight weight = loss.weight();
  return LossFunction(
      names,
      [loss = std::move(loss), coefficient](const LossArguments& arguments) {
        AddAuxiliaryLoss("z_loss", at::logsumexp(arguments.outputs, -1)
                                       .square()
                                       .mean()
                                       .mul(coefficient));
        return loss(arguments);
      },
      weight);
}

}  // namespace tandem
