// Module traits: how a technique takes a model of whatever kind: its
// parameters, its buffers, its forward.

#ifndef TANDEM_CORE_MODEL_MODULE_TRAITS_H_
#define TANDEM_CORE_MODEL_MODULE_TRAITS_H_

#include <type_traits>
#include <utility>

#include "core/base/tensors.h"

namespace tandem {
namespace module_traits_internal {

template <typename Module, typename = void>
struct PointsToModule : std::false_type {};
template <typename Module>
struct PointsToModule<
    Module,
    std::void_t<decltype(std::declval<const Module&>()->named_parameters())>>
    : std::true_type {};

}  // namespace module_traits_internal

// This one is for what behaves like a pointer to a torch::nn::Module:
// std::shared_ptr<Net>, torch::nn::Sequential. (A list of layers:
// core/model/layer_list.h.)
template <typename Module>
struct ModuleTraits {
  static_assert(
      module_traits_internal::PointsToModule<Module>::value,
      "give the module as a std::shared_ptr, std::make_shared<Net>(), "
      "or as a holder such as torch::nn::Sequential: of a value a "
      "copy would be trained");

  static NamedTensors Parameters(const Module& module) {
    return Pairs(module->named_parameters());
  }
  static NamedTensors Buffers(const Module& module) {
    return Pairs(module->named_buffers());
  }
  // A module may give an absl::StatusOr of its output.
  template <typename... Args>
  static auto Call(Module& module, Args&&... args) {
    return module->forward(std::forward<Args>(args)...);
  }

 private:
  template <typename Dict>
  static NamedTensors Pairs(const Dict& dict) {
    NamedTensors tensors;
    for (const auto& item : dict)
      tensors.emplace_back(item.key(), item.value());
    return tensors;
  }
};

}  // namespace tandem

#endif  // TANDEM_CORE_MODEL_MODULE_TRAITS_H_
