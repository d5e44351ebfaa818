#include "parallel/activation_checkpointing/kept_buffers.h"

#include <ATen/core/grad_mode.h>

#include <cstddef>
#include <utility>

namespace tandem {

KeptBuffers::KeptBuffers(std::vector<at::Tensor> buffers)
    : buffers_(std::move(buffers)) {
  const at::NoGradGuard no_grad;
  for (const at::Tensor& each : buffers_) values_.push_back(each.clone());
}

KeptBuffers::~KeptBuffers() {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < values_.size(); ++i) {
    // Graphs hold the buffer, and count its changes; this is none, and goes by
    // a tensor that counts for itself.
    buffers_[i].variable_data().copy_(values_[i]);
  }
}

std::function<std::shared_ptr<void>()> KeepingBuffers(
    std::vector<at::Tensor> buffers,
    std::function<std::shared_ptr<void>()> around) {
  if (buffers.empty()) return around;
  return [buffers = std::move(buffers), around = std::move(around)] {
    struct Both {  // members go in the other order
      std::shared_ptr<void> around;
      KeptBuffers kept;
    };
    std::shared_ptr<void> outer;
    if (around) outer = around();
    return std::shared_ptr<void>(
        new Both{std::move(outer), KeptBuffers(buffers)});
  };
}

}  // namespace tandem
