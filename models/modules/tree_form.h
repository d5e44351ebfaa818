// Tree form: the structure of tuples, lists and dicts of tensors, without the
// tensors (torch.utils._pytree's TreeSpec).

#ifndef TANDEM_MODELS_MODULES_TREE_FORM_H_
#define TANDEM_MODELS_MODULES_TREE_FORM_H_

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem {

// Trees are what core/base/tensor_tree.h goes through. Undefined tensors are
// part of the form: a tree that has another one undefined has another form.
class TreeForm {
 public:
  // Of one tensor.
  TreeForm();

  // InvalidArgument for a tree without a defined tensor, and for what is
  // neither a tensor nor a tuple, list or dict of them.
  static absl::StatusOr<TreeForm> Of(const c10::IValue& tree);

  // Where the defined tensors are, in their order: "" of a tensor alone, "[1]",
  // "['mask']", "['views'][0]". At least one.
  const std::vector<std::string>& paths() const { return paths_; }

  // The defined tensors of `tree`, one for each path. InvalidArgument, with
  // what is there and what should be, for a tree of another form.
  absl::StatusOr<std::vector<at::Tensor>> Take(const c10::IValue& tree) const;

  // The tree of this form that has these tensors. Requires one for each path.
  c10::IValue Build(const std::vector<at::Tensor>& tensors) const;

 private:
  c10::IValue skeleton_;            // with undefined tensors everywhere
  std::vector<bool> defined_;       // by tensor of the skeleton
  std::vector<std::string> paths_;  // of the defined ones
};

}  // namespace tandem

#endif  // TANDEM_MODELS_MODULES_TREE_FORM_H_
