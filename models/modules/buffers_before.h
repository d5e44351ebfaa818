// Buffers before: puts a module's buffers back to what they were.

#ifndef TANDEM_MODELS_MODULES_BUFFERS_BEFORE_H_
#define TANDEM_MODELS_MODULES_BUFFERS_BEFORE_H_

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstddef>
#include <vector>

namespace tandem {

// At its end, to what they are at its beginning. Without gradients.
class BuffersBefore {
 public:
  explicit BuffersBefore(const torch::nn::Module& module)
      : buffers_(module.buffers()) {
    for (const at::Tensor& each : buffers_) values_.push_back(each.clone());
  }
  ~BuffersBefore() {
    for (size_t i = 0; i < buffers_.size(); ++i) buffers_[i].copy_(values_[i]);
  }
  BuffersBefore(const BuffersBefore&) = delete;
  BuffersBefore& operator=(const BuffersBefore&) = delete;

 private:
  std::vector<at::Tensor> buffers_;
  std::vector<at::Tensor> values_;
};

}  // namespace tandem

#endif  // TANDEM_MODELS_MODULES_BUFFERS_BEFORE_H_
