// Saved-tensor hooks: what autograd keeps for backward, replaced by what a hook
// keeps in its place (torch.autograd.graph.saved_tensors_hooks).

#ifndef TANDEM_PARALLEL_ACTIVATION_CHECKPOINTING_SAVED_TENSOR_HOOKS_H_
#define TANDEM_PARALLEL_ACTIVATION_CHECKPOINTING_SAVED_TENSOR_HOOKS_H_

#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <memory>

namespace tandem {

// Makes the hooks of one tensor that an operator is about to keep: LibTorch
// gives it the tensor (call_pack_hook), drops the tensor, and asks for it again
// (call_unpack_hook) whenever a backward needs it.
class SavedTensorHooks {
 public:
  virtual ~SavedTensorHooks() = default;
  virtual std::unique_ptr<torch::autograd::SavedVariableHooks> Make() = 0;
};

// While it lives, what operators of the calling thread keep goes through
// `hooks`; null: is kept as usual. Scopes nest, and the innermost counts. An
// exception of a hook passes through the operator. A backward within the scope
// is outside of it, since it may run on other threads.
//
// LibTorch has default hooks for Python alone, but asks its engine for them,
// which a program may replace. This library's is LibTorch's own with that one
// answer added; it is put in place when the program starts. Throws c10::Error
// where somebody else has replaced it since (Python, in the same process).
class SavedTensorHooksScope {
 public:
  explicit SavedTensorHooksScope(SavedTensorHooks* hooks);
  ~SavedTensorHooksScope();
  SavedTensorHooksScope(const SavedTensorHooksScope&) = delete;
  SavedTensorHooksScope& operator=(const SavedTensorHooksScope&) = delete;

 private:
  SavedTensorHooks* const outer_hooks_;
  const int outer_backward_;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_ACTIVATION_CHECKPOINTING_SAVED_TENSOR_HOOKS_H_
