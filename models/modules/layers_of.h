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

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/layer.h"
#include "models/modules/module_call.h"
#include "models/modules/tree_values.h"

namespace tandem {

namespace own_forward_internal {

template <typename T, typename = void>
struct HasTreeValue : std::false_type {};
template <typename T>
struct HasTreeValue<T, std::void_t<decltype(sizeof(TreeValue<T>))>>
    : std::true_type {};

// Whether a value of this type can be a tree, down to its leaves.
template <typename T>
struct IsTree : HasTreeValue<T> {};
template <typename T>
struct IsTree<std::vector<T>> : IsTree<T> {};
template <typename A, typename B>
struct IsTree<std::pair<A, B>> : std::conjunction<IsTree<A>, IsTree<B>> {};
template <typename... T>
struct IsTree<std::tuple<T...>> : std::conjunction<IsTree<T>...> {};
template <typename T>
struct IsTree<std::map<std::string, T>> : IsTree<T> {};

// Whether a parameter can be given one.
template <typename T>
struct TakesTree : IsTree<std::decay_t<T>> {};
template <typename T>
struct TakesTree<T&> : std::false_type {};
template <typename T>
struct TakesTree<const T&> : IsTree<T> {};
template <typename T>
struct TakesTree<T&&> : std::false_type {};

template <typename Forward>
struct IsOfTrees : std::false_type {};
template <typename Result, typename Class, typename First, typename... More>
struct IsOfTrees<Result (Class::*)(First, More...)>
    : std::conjunction<IsTree<std::decay_t<Result>>, TakesTree<First>,
                       TakesTree<More>...> {};
template <typename Result, typename Class, typename First, typename... More>
struct IsOfTrees<Result (Class::*)(First, More...) const>
    : IsOfTrees<Result (Class::*)(First, More...)> {};

// Not where it is overloaded, a template, or not public.
template <typename Module, typename = void>
struct HasForward : std::false_type {};
template <typename Module>
struct HasForward<Module, std::void_t<decltype(&Module::forward)>>
    : IsOfTrees<decltype(&Module::forward)> {};

}  // namespace own_forward_internal

// The `forward` of a whole module as a call, to compare its layers with. Null
// for a module of a class that has no `forward` that takes and gives trees.
template <typename Module>
ModuleCall OwnForward(const std::shared_ptr<Module>& module) {
  if constexpr (own_forward_internal::HasForward<Module>::value) {
    if (module != nullptr) {
      return module_calls_internal::CallByType(module, &Module::forward);
    }
  }
  return nullptr;
}

struct ModuleLayers {
  // Names are those of the modules: the model's state has PyTorch's names.
  LayerSpecs specs;
  // What the first one takes and the last one gives: for BatchOfTrees and
  // LossOfTrees (batch_of_trees.h).
  TreeForm inputs, outputs;
};

// An example of what the first layer takes, of one sample or more (ToTree).
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
