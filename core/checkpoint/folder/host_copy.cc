#include "core/checkpoint/folder/host_copy.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "core/base/torch_status.h"

namespace tandem {
namespace {

// Pinned for CUDA's sake: pages that may move are copied twice.
at::Tensor BufferFor(const at::Tensor& tensor) {
  return at::empty(tensor.sizes(), at::TensorOptions(at::kCPU)
                                       .dtype(tensor.scalar_type())
                                       .pinned_memory(tensor.is_cuda()));
}

bool Fits(const at::Tensor& buffer, const at::Tensor& tensor) {
  return buffer.defined() && buffer.sizes() == tensor.sizes() &&
         buffer.scalar_type() == tensor.scalar_type();
}

}  // namespace

absl::StatusOr<StatePart> HostCopy::Take(const StatePart& part) {
  return CatchTorchOr(
      [&] {
        at::NoGradGuard no_grad;
        StatePart copy;
        copy.slices = part.slices;
        for (const auto& [name, tensor] : part.tensors) {
          at::Tensor& buffer = buffers_[name];
          if (!Fits(buffer, tensor)) buffer = BufferFor(tensor);
          buffer.copy_(tensor);
          copy.tensors.emplace_back(name, buffer);
        }
        return copy;
      },
      "copying the state that is to be saved");
}

uint64_t HostCopy::bytes() const {
  uint64_t bytes = 0;
  for (const auto& each : buffers_) bytes += each.second.nbytes();
  return bytes;
}

}  // namespace tandem
