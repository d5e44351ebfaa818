// Batches and losses of trees: a model's inputs, outputs and targets as tuples,
// lists and dicts of tensors.

#ifndef TANDEM_MODELS_MODULES_BATCH_OF_TREES_H_
#define TANDEM_MODELS_MODULES_BATCH_OF_TREES_H_

#include <ATen/core/ivalue.h>

#include <functional>
#include <utility>

#include "absl/status/statusor.h"
#include "core/loss/loss.h"
#include "core/model/batch.h"
#include "models/modules/tree_values.h"

namespace tandem {

// A batch for layers of LayersOf and a loss of LossOfTrees. Dimension 0 of each
// tensor counts the samples. InvalidArgument for what is no tree, and for one
// of no samples' tensor.
absl::StatusOr<Batch> BatchOfTrees(const c10::IValue& inputs,
                                   const c10::IValue& targets);

// Given what the last layer gives, and a batch's targets.
using TreeLoss = std::function<LossResult(const c10::IValue& outputs,
                                          const c10::IValue& targets)>;

// `outputs` is ModuleLayers::outputs; `targets` of the batches' targets. Parts
// of a batch weigh by their samples.
LossFunction LossOfTrees(const TreeForm& outputs, const TreeForm& targets,
                         TreeLoss loss);

// The same with C++ types, for example std::map<std::string, at::Tensor> and
// std::tuple<at::Tensor, at::Tensor>.
template <typename Outputs, typename Targets, typename Function>
LossFunction LossOf(const TreeForm& outputs, const TreeForm& targets,
                    Function loss) {
  return LossOfTrees(outputs, targets,
                     [loss = std::move(loss)](const c10::IValue& output_tree,
                                              const c10::IValue& expected) {
                       return loss(
                           FromTree<Outputs>(output_tree, "the outputs"),
                           FromTree<Targets>(expected, "the targets"));
                     });
}

}  // namespace tandem

#endif  // TANDEM_MODELS_MODULES_BATCH_OF_TREES_H_
