#include "models/modules/batch_of_trees.h"

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "models/modules/tree_values.h"

namespace tandem {
namespace {

struct Parts {
  at::Tensor first;
  std::map<std::string, c10::IValue> further = {};
};

absl::StatusOr<Parts> SplitTree(const c10::IValue& tree, const char* name) {
  absl::StatusOr<TreeForm> form = TreeForm::Of(tree);
  TANDEM_RETURN_IF_ERROR(
      Annotate(form.status(), absl::StrCat("the batch's ", name, "s")));
  TANDEM_ASSIGN_OR_RETURN(const std::vector<at::Tensor> tensors,
                          form->Take(tree));
  const std::vector<std::string> names = FurtherNames(*form, name);
  Parts parts = {tensors[0]};
  for (size_t i = 0; i < names.size(); ++i) {
    parts.further[names[i]] = tensors[i + 1];
  }
  return parts;
}

c10::IValue Tree(const TreeForm& form, const char* name,
                 const at::Tensor& first, const TensorsByName& further) {
  std::vector<at::Tensor> tensors = {first};
  for (const std::string& each : FurtherNames(form, name)) {
    tensors.push_back(further.at(each));
  }
  return form.Build(tensors);
}

}  // namespace

absl::StatusOr<Batch> BatchOfTrees(const c10::IValue& inputs,
                                   const c10::IValue& targets) {
  TANDEM_ASSIGN_OR_RETURN(Parts input, SplitTree(inputs, kInputTree));
  TANDEM_ASSIGN_OR_RETURN(Parts target, SplitTree(targets, kTargetTree));
  if (input.first.dim() == 0) {
    return absl::InvalidArgumentError(
        "the batch's first input has no dimension, of which 0 should count the "
        "samples");
  }
  Batch batch;
  batch.size = input.first.size(0);
  batch.inputs = std::move(input.first);
  batch.further_inputs = std::move(input.further);
  batch.targets = std::move(target.first);
  batch.further_targets = std::move(target.further);
  return batch;
}

LossFunction LossOfTrees(const TreeForm& outputs, const TreeForm& targets,
                         TreeLoss loss) {
  LossNames names;
  names.outputs = FurtherNames(outputs, kOutputTree);
  names.targets = FurtherNames(targets, kTargetTree);
  return LossFunction(
      std::move(names), [outputs, targets, loss = std::move(loss)](
                            const LossArguments& arguments) {
        return loss(Tree(outputs, kOutputTree, arguments.outputs,
                         arguments.further_outputs),
                    Tree(targets, kTargetTree, arguments.targets,
                         arguments.further_targets));
      });
}

}  // namespace tandem
