#include "parallel/strategy/stage/own_values.h"

#include <ATen/core/grad_mode.h>

#include <cstddef>
#include <utility>

#include "core/device/memory_category.h"

namespace tandem {

OwnValues::OwnValues(FlatBufferList buffers, std::vector<at::Tensor> others)
    : buffers_(std::move(buffers)), others_(std::move(others)) {
  const at::NoGradGuard no_grad;
  const MemoryCategoryScope category(MemoryCategory::kTemporaries);
  // The host's memory: a device may be full.
  const auto kept = [](const at::Tensor& tensor) {
    return tensor.to(at::kCPU, tensor.scalar_type(), /*non_blocking=*/false,
                     /*copy=*/true);
  };
  for (const FlatBuffer* buffer : buffers_) {
    values_.push_back(kept(buffer->values()));
  }
  for (const at::Tensor& each : others_) copies_.push_back(kept(each));
}

void OwnValues::Restore() const {
  const at::NoGradGuard no_grad;
  size_t next = 0;
  for (const FlatBuffer* buffer : buffers_) {
    buffer->values().copy_(values_[next++]);
    buffer->CountWrite();
  }
  for (size_t i = 0; i < others_.size(); ++i) others_[i].copy_(copies_[i]);
}

}  // namespace tandem
