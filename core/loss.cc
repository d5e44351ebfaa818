#include "core/loss.h"

#include <ATen/ops/ones.h>

namespace tandem {

LossResult LossFunction::operator()(const at::Tensor& outputs,
                                    const at::Tensor& targets) const {
  LossResult result = loss_(outputs, targets);
  if (result.score.count == 0) result.score.loss_sum = 0;
  return result;
}

at::Tensor WeighLoss(const at::Tensor& loss, double weight,
                     const at::Tensor& outputs) {
  if (weight == 1) return loss;
  if (weight != 0) return loss.mul(weight);
  const at::Tensor all = at::ones({}, outputs.options().dtype(at::kBool));
  return outputs.masked_fill(all, 0).sum();
}

}  // namespace tandem
