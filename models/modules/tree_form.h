// Tree form: the structure of tuples, lists and dicts of tensors, without the
// tensors (torch.utils._pytree's TreeSpec).
//
// Names of the tensors of trees, as layers, batches and losses know them.

#ifndef TANDEM_MODELS_MODULES_TREE_FORM_H_
#define TANDEM_MODELS_MODULES_TREE_FORM_H_

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem {

// Trees are what core/base/tensor_tree.h goes through. Undefined tensors are
// part of the form: a tree that has another one undefined has another form.
class TreeForm {
 public:
  // The form of one tensor.
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

inline constexpr char kInputTree[] = "input";
inline constexpr char kOutputTree[] = "output";
inline constexpr char kTargetTree[] = "target";

// Names of the tensors behind the first one, which has none: it is what goes
// from layer to layer, a batch's `inputs` or `targets`, a loss's `outputs`.
// "output[1]", "output['mask']".
inline std::vector<std::string> FurtherNames(const TreeForm& form,
                                             const std::string& tree) {
  std::vector<std::string> names;
  for (size_t i = 1; i < form.paths().size(); ++i) {
    names.push_back(tree + form.paths()[i]);
  }
  return names;
}

}  // namespace tandem

#endif  // TANDEM_MODELS_MODULES_TREE_FORM_H_
