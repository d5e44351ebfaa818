#include "parallel/gradient_clipping.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <glog/logging.h>

#include <algorithm>
#include <map>
#include <vector>

namespace tandem {

double GradientNorm(const FlatBuffers& buffers) {
  at::NoGradGuard no_grad;
  std::map<int64_t, at::Tensor> norms;  // by the parameter's position
  for (const auto& buffer : buffers) {
    for (size_t i = 0; i < buffer->slots().size(); ++i) {
      if (!buffer->has_gradient(i)) continue;
      const FlatSlot& slot = buffer->slots()[i];
      const at::Tensor grad =
          buffer->grads().narrow(0, slot.offset, slot.numel);
      norms[slot.position] = at::linalg_vector_norm(grad);
    }
  }
  if (norms.empty()) return 0;
  std::vector<at::Tensor> in_order;
  const at::Tensor& first = norms.begin()->second;
  for (const auto& each : norms) in_order.push_back(each.second.to(first));
  return at::linalg_vector_norm(at::stack(in_order)).item<double>();
}

double ClipGradientNorm(const FlatBuffers& buffers, double max_norm) {
  CHECK_GT(max_norm, 0);
  at::NoGradGuard no_grad;
  const double norm = GradientNorm(buffers);
  // Not std::min, which would drop a NaN.
  double scale = max_norm / (norm + 1e-6);
  if (scale > 1) scale = 1;
  for (const auto& buffer : buffers) buffer->grads().mul_(scale);
  return norm;
}

void ClipGradientValue(const FlatBuffers& buffers, double clip_value) {
  CHECK_GT(clip_value, 0);
  at::NoGradGuard no_grad;
  for (const auto& buffer : buffers) {
    buffer->grads().clamp_(-clip_value, clip_value);
  }
}

}  // namespace tandem
