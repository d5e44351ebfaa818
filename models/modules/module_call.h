// Module call: a module that is given a tree of tensors, and gives one; made
// from the types of its forward, or of a function in its place.

#ifndef TANDEM_MODELS_MODULES_MODULE_CALL_H_
#define TANDEM_MODELS_MODULES_MODULE_CALL_H_

#include <ATen/core/ivalue.h>
#include <c10/util/Exception.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/sequential.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "models/modules/tree_values.h"

namespace tandem {

// Calls one module. Throws c10::TypeError for an argument of another type than
// it takes.
using ModuleCall = std::function<c10::IValue(const c10::IValue& input)>;

namespace module_calls_internal {

// What a call's arguments are made of. A function of one argument takes the
// tree itself; of several, the elements of a tuple.
inline std::vector<c10::IValue> Parts(const c10::IValue& input,
                                      size_t parameters) {
  if (parameters == 1 || !input.isTuple()) return {input};
  return input.toTupleRef().elements().vec();
}

template <typename... Arguments>
struct Call {
  using Values = std::tuple<std::decay_t<Arguments>...>;

  template <size_t... i>
  static Values From(const std::vector<c10::IValue>& parts,
                     std::index_sequence<i...> /*which*/) {
    TORCH_CHECK_TYPE(parts.size() == sizeof...(i), "it takes ", sizeof...(i),
                     " arguments, but is given ", parts.size());
    return {FromTree<std::decay_t<Arguments>>(
        parts[i], "argument " + std::to_string(i))...};
  }
  static Values From(const c10::IValue& input) {
    return From(Parts(input, sizeof...(Arguments)),
                std::index_sequence_for<Arguments...>());
  }

  // The same for AnyModule, which knows the default arguments of those that
  // are not there (FORWARD_HAS_DEFAULT_ARGS).
  template <size_t... i>
  static torch::nn::AnyValue Any(torch::nn::AnyModule& module,
                                 const std::vector<c10::IValue>& parts,
                                 std::index_sequence<i...> /*which*/) {
    constexpr size_t count = sizeof...(i);
    TORCH_CHECK_TYPE(parts.size() >= 1 && parts.size() <= sizeof...(Arguments),
                     "it takes ", sizeof...(Arguments),
                     " arguments, but is given ", parts.size());
    if constexpr (count > 1) {
      if (parts.size() < count) {
        return Any(module, parts, std::make_index_sequence<count - 1>());
      }
    }
    return module.any_forward(
        torch::nn::AnyValue(FromTree<std::tuple_element_t<i, Values>>(
            parts[i], "argument " + std::to_string(i)))...);
  }
  static torch::nn::AnyValue Any(torch::nn::AnyModule& module,
                                 const c10::IValue& input) {
    return Any(module, Parts(input, sizeof...(Arguments)),
               std::index_sequence_for<Arguments...>());
  }
};

template <typename Module, typename Class, typename Result,
          typename... Arguments>
ModuleCall CallByType(const std::shared_ptr<Module>& module,
                      Result (Class::*)(Arguments...)) {
  return [any = torch::nn::AnyModule(module)](
             const c10::IValue& input) mutable -> c10::IValue {
    return ToTree(Call<Arguments...>::Any(any, input)
                      .template get<std::decay_t<Result>>());
  };
}

// AnyModule takes no `forward` that is const.
template <typename Module, typename Class, typename Result,
          typename... Arguments>
ModuleCall CallByType(const std::shared_ptr<Module>& module,
                      Result (Class::*)(Arguments...) const) {
  return [module](const c10::IValue& input) -> c10::IValue {
    return ToTree(std::apply(
        [&](auto&&... each) -> std::decay_t<Result> {
          return module->forward(std::move(each)...);
        },
        Call<Arguments...>::From(input)));
  };
}

// Types of a function's first parameter, and of its call with a module in its
// place.
template <typename Function, typename Signature>
struct OfFunction;
template <typename Function, typename Result, typename Class,
          typename Reference, typename... Arguments>
struct OfFunction<Function, Result (Class::*)(Reference, Arguments...) const> {
  using Module = std::remove_const_t<std::remove_reference_t<Reference>>;
  static ModuleCall Of(const std::shared_ptr<Module>& module,
                       const Function& function) {
    return [module, function](const c10::IValue& input) -> c10::IValue {
      return ToTree(std::apply(
          [&](auto&&... each) -> std::decay_t<Result> {
            return function(*module, std::move(each)...);
          },
          Call<Arguments...>::From(input)));
    };
  }
};

}  // namespace module_calls_internal

// How modules of known classes are called, with a tree of tensors that they
// take, and one that they give. Not thread-safe while calls are added.
class ModuleCalls {
 public:
  // The `forward` of modules of this class, or of one that derives from it.
  // It is given what the module before it gives: as its one argument; or, where
  // that is a tuple and forward has several parameters, element by element.
  // Arguments may be left out that FORWARD_HAS_DEFAULT_ARGS has values for.
  template <typename Module>
  ModuleCalls& Add() {
    finds_.push_back([](const std::shared_ptr<torch::nn::Module>& module) {
      const auto typed = std::dynamic_pointer_cast<Module>(module);
      return typed == nullptr
                 ? ModuleCall()
                 : module_calls_internal::CallByType(typed, &Module::forward);
    });
    return *this;
  }

  // Instead of forward, a lambda whose first parameter is a reference to the
  // module: for what is to be passed on beside it, say.
  //
  //   calls.Add([](torch::nn::TransformerDecoderLayerImpl& layer, Tensor x,
  //                Tensor memory) {
  //     return std::make_tuple(layer.forward(x, memory), memory);
  //   });
  template <typename Function>
  ModuleCalls& Add(Function function) {
    using Its =
        module_calls_internal::OfFunction<Function,
                                          decltype(&Function::operator())>;
    finds_.push_back(
        [function](const std::shared_ptr<torch::nn::Module>& module) {
          const auto typed =
              std::dynamic_pointer_cast<typename Its::Module>(module);
          return typed == nullptr ? ModuleCall() : Its::Of(typed, function);
        });
    return *this;
  }

  // By the first of its classes that was added; null if none was.
  ModuleCall Find(const std::shared_ptr<torch::nn::Module>& module) const {
    for (const auto& find : finds_) {
      if (ModuleCall call = find(module)) return call;
    }
    return nullptr;
  }

 private:
  std::vector<std::function<ModuleCall(
      const std::shared_ptr<torch::nn::Module>& module)>>
      finds_;
};

// Call of a child of torch::nn::Sequential, whose class nobody names.
//
// The module is given one argument, as Sequential gives it: a tensor,
// std::tuple of two to four, std::vector or, for a dict,
// std::map<std::string, Tensor>. It may give any of these, c10::Dict and
// torch::OrderedDict of tensors. Throws c10::TypeError, which says what to do,
// for anything else.
ModuleCall AnyModuleCall(const torch::nn::AnyModule& module);

// All of its modules, one after the other.
ModuleCall SequentialCall(
    const std::shared_ptr<torch::nn::SequentialImpl>& sequential);

}  // namespace tandem

#endif  // TANDEM_MODELS_MODULES_MODULE_CALL_H_
