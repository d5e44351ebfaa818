#include "parallel/pipeline/stage/kept_microbatch.h"

#include <ATen/Tensor.h>
#include <ATen/ops/ones_like.h>
#include <torch/csrc/autograd/variable.h>

namespace tandem {

BackwardRoot RootOfOutput(const at::Tensor& tensor, size_t output) {
  return {torch::autograd::impl::gradient_edge(tensor), output, {}};
}

BackwardRoot RootOfLoss(const at::Tensor& loss) {
  TORCH_CHECK(loss.numel() == 1, "a loss must be one number, not ",
              loss.sizes());
  return {torch::autograd::impl::gradient_edge(loss), std::nullopt,
          at::ones_like(loss.detach())};
}

void ScaleLosses(std::vector<BackwardRoot>& roots, const at::Tensor& scale) {
  if (!scale.defined()) return;
  for (BackwardRoot& each : roots) {
    if (each.one.defined()) each.one.mul_(scale);
  }
}

}  // namespace tandem
