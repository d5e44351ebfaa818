// Layers of a module: any torch::nn module whose children are called one after
// the other, as a list of layers, with no change to its class
// (torch.distributed.pipelining's split points).
//
//   auto net = std::make_shared<Net>();  // registers embed, blocks, head
//   TANDEM_ASSIGN_OR_RETURN(
//       const tandem::ModuleLayers layers,
//       (tandem::LayersOf<Embed, Block, Head>(
//           net, {"embed", "blocks.*", "head"})));
//   ... MeshStrategy::Create(layers.specs, loss, options, &world)
//
// What a child gives the next one takes: a tensor, or tuples, lists and dicts
// of tensors (tree_values.h), for which an example is needed. They cross cuts
// as skip connections do: each tensor of them by its path.
//
// The module's own forward is not called in training: what it does between its
// children (an activation, a sum) is not part of the layers. With an example it
// is compared with them.
//
// The layers are the module's own children. Their values are what the
// constructor, or a file, gave them; replicas take those of replica 0. A second
// strategy of the same layers begins where the first one ended.

#ifndef TANDEM_MODELS_MODULES_LAYERS_OF_H_
#define TANDEM_MODELS_MODULES_LAYERS_OF_H_

#include <ATen/core/ivalue.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/layer.h"
#include "models/modules/module_call.h"
#include "models/modules/module_calls.h"
#include "models/modules/own_forward.h"
#include "models/modules/tree_form.h"

namespace tandem {

struct ModuleLayers {
  // Names are those of the modules: the model's state has PyTorch's names.
  LayerSpecs specs;
  // What the first one takes and the last one gives: for BatchOfTrees and
  // LossOfTrees (batch_of_trees.h).
  TreeForm inputs, outputs;
};

// An example of what the first layer takes, of one sample or more (TreeOf).
// The module is run on it once, without gradients, on the CPU and in the mode
// in which it is; its buffers and the default generator are left as they were.
// From it is known what each child gives, and that the module's own forward
// gives what the layers do. Without one, each takes and gives a tensor, and
// what looks as if the forward did more than call them is logged.
using ExampleInput = std::optional<c10::IValue>;

namespace layers_of_internal {

// `own_forward` may be null.
absl::StatusOr<ModuleLayers> LayersOfModule(
    const std::shared_ptr<torch::nn::Module>& module,
    const std::vector<std::string>& patterns, const ModuleCalls& calls,
    const ExampleInput& example, const ModuleCall& own_forward);

}  // namespace layers_of_internal

// One layer for each module in it, "0", "1", ... or by its name.
//
// InvalidArgument where children share parameters, and for what they throw on
// the example, with the layer's name.
absl::StatusOr<ModuleLayers> LayersOf(const torch::nn::Sequential& sequential,
                                      const ExampleInput& example = {});

// One layer for each module that `patterns` name (module_paths.h), in this
// order. Each is called as `calls` say of its class; a child of a Sequential,
// and a Sequential, need no such call.
//
// InvalidArgument for patterns that do not fit (ModulesAt), for a module that
// nothing of `calls` is for, for what modules throw on the example, and where
// the forward of `Root`, if it takes and gives trees, gives something else for
// it than the layers. (A std::shared_ptr<torch::nn::Module> hides it.)
template <typename Root>
absl::StatusOr<ModuleLayers> LayersOf(const std::shared_ptr<Root>& module,
                                      const std::vector<std::string>& patterns,
                                      const ModuleCalls& calls,
                                      const ExampleInput& example = {}) {
  return layers_of_internal::LayersOfModule(module, patterns, calls, example,
                                            OwnForward(module));
}

// Each is called by the forward of the first of these classes that it is of.
template <typename Module, typename... More, typename Root>
absl::StatusOr<ModuleLayers> LayersOf(const std::shared_ptr<Root>& module,
                                      const std::vector<std::string>& patterns,
                                      const ExampleInput& example = {}) {
  ModuleCalls calls;
  calls.Add<Module>();
  (calls.Add<More>(), ...);
  return LayersOf(module, patterns, calls, example);
}

}  // namespace tandem

#endif  // TANDEM_MODELS_MODULES_LAYERS_OF_H_
