// Own forward: that of a whole module, as a call, to compare its layers with.

#ifndef TANDEM_MODELS_MODULES_OWN_FORWARD_H_
#define TANDEM_MODELS_MODULES_OWN_FORWARD_H_

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

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

// Null for a module of a class that has no `forward` that takes and gives
// trees.
template <typename Module>
ModuleCall OwnForward(const std::shared_ptr<Module>& module) {
  if constexpr (own_forward_internal::HasForward<Module>::value) {
    if (module != nullptr) {
      return module_calls_internal::CallByType(module, &Module::forward);
    }
  }
  return nullptr;
}

}  // namespace tandem

#endif  // TANDEM_MODELS_MODULES_OWN_FORWARD_H_
