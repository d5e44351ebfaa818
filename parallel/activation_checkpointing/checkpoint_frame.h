// Checkpoint frame: one call of a checkpointed function, from its forward to
// the last backward through it (non-re-entrant activation checkpointing,
// torch.utils.checkpoint's with use_reentrant=False).
//
// The function runs with its graph as ever. Of each tensor that an operator
// keeps for backward the frame keeps a number. When a backward first asks for
// one of them, the function runs again, and what operators keep then is handed
// over by its number; that run's own graph is dropped. So the graph that
// backward goes through is the same as without checkpointing, down to the
// parameters' accumulators and their hooks.

#ifndef TANDEM_PARALLEL_ACTIVATION_CHECKPOINTING_CHECKPOINT_FRAME_H_
#define TANDEM_PARALLEL_ACTIVATION_CHECKPOINTING_CHECKPOINT_FRAME_H_

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "parallel/activation_checkpointing/options.h"
#include "parallel/activation_checkpointing/recompute_context.h"
#include "parallel/activation_checkpointing/saved_tensor_hooks.h"

namespace tandem {

// Lives as long as something in the graph may ask for a tensor. Thread-safe
// from End on: a backward may ask from several threads.
class CheckpointFrame final
    : public SavedTensorHooks,
      public std::enable_shared_from_this<CheckpointFrame> {
 public:
  // Runs the function with such inputs once more.
  using Function = std::function<void(const std::vector<at::Tensor>& inputs)>;

  // The inputs are kept as an operator would: a frame around keeps a number in
  // their place.
  CheckpointFrame(CheckpointOptions options, Function function,
                  const std::vector<at::Tensor>& inputs);

  // While it lives, the function runs for the first time.
  class FirstPass {
   public:
    explicit FirstPass(CheckpointFrame* frame)
        : draws_(&frame->context_), hooks_(frame) {}

   private:
    const RecomputeContext::Recording draws_;
    const SavedTensorHooksScope hooks_;
  };

  // The function has come to its end. Throws c10::Error where it has changed
  // one of `inputs`, the constructor's, in place.
  void End(const std::vector<at::Tensor>& inputs);

  std::unique_ptr<torch::autograd::SavedVariableHooks> Make() override;

 private:
  class Recomputation;
  class Noted;

  // In the place of a tensor. Its graph's.
  struct Slot {
    size_t number = 0;
    // Computed again, and for which backward (a graph task of autograd's).
    at::Tensor tensor;
    std::optional<int64_t> backward;
  };

  struct Description {
    std::vector<int64_t> sizes;
    c10::ScalarType dtype;
    c10::Device device;
  };
  static Description Describe(const at::Tensor& tensor);
  static std::string ToText(const Description& description);

  std::shared_ptr<Slot> Note(const at::Tensor& tensor);
  at::Tensor Find(const std::shared_ptr<Slot>& slot);
  void Recompute(int64_t backward);
  void Forget(int64_t backward);

  const CheckpointOptions options_;
  const Function function_;
  RecomputeContext context_;
  std::vector<torch::autograd::SavedVariable> inputs_;
  std::vector<uint32_t> versions_;

  // The function may itself do a backward, within which it is computed again.
  std::recursive_mutex mutex_;
  std::vector<std::weak_ptr<Slot>> slots_;
  std::vector<Description> descriptions_;  // if they are compared
  bool has_ended_ = false;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_ACTIVATION_CHECKPOINTING_CHECKPOINT_FRAME_H_
