// Layer checks: whether layers that are a module's children compute what the
// module's own forward does.

#ifndef TANDEM_MODELS_MODULES_LAYER_CHECKS_H_
#define TANDEM_MODELS_MODULES_LAYER_CHECKS_H_

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <torch/nn/module.h>

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "models/modules/module_call.h"
#include "models/modules/module_paths.h"

namespace tandem {

// Puts a module's buffers back, at its end, to what they are at its beginning.
// Without gradients.
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

// The seed of what modules draw on an example.
constexpr uint64_t kSeedOfExample = 0;

// The same tree of copies: a module may write to what it is given.
absl::StatusOr<c10::IValue> CopyOfTree(const c10::IValue& tree);

// InvalidArgument where `own`, the module's forward, gives something else for
// `example` than the layers did, one after the other, with the same draws. A
// forward that fails on the example (one that is not meant to be called) is
// logged.
absl::Status CheckAgainstOwnForward(const torch::nn::Module& module,
                                    const ModuleCall& own,
                                    const c10::IValue& example,
                                    const c10::IValue& of_layers);

// Where there is no example to compare on: logs, by name, what looks as if the
// forward did more than call the layers.
void WarnOfUnlikelyLayers(const torch::nn::Module& module,
                          const std::vector<ModuleAtPath>& layers);

}  // namespace tandem

#endif  // TANDEM_MODELS_MODULES_LAYER_CHECKS_H_
