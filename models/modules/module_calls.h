// Module calls: how modules of known classes are called, with a tree of tensors
// that they take, and one that they give.

#ifndef TANDEM_MODELS_MODULES_MODULE_CALLS_H_
#define TANDEM_MODELS_MODULES_MODULE_CALLS_H_

#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <vector>

#include "models/modules/module_call.h"

namespace tandem {

// Not thread-safe while calls are added.
class ModuleCalls {
 public:
  // The `forward` of modules of this class, or of one that derives from it.
  // It is given what the module before it gives: as its one argument; or, where
  // that is a tuple and forward has several parameters, element by element.
  // Arguments may be left out that FORWARD_HAS_DEFAULT_ARGS has values for.
  template <typename Module>
  ModuleCalls& Add() {
    finds_.push_back([](const std::shared_ptr<torch::nn::Module>& module) {
      const auto its = std::dynamic_pointer_cast<Module>(module);
      return its == nullptr
                 ? ModuleCall()
                 : module_calls_internal::CallByType(its, &Module::forward);
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
    finds_.push_back([function](
                         const std::shared_ptr<torch::nn::Module>& module) {
      const auto its = std::dynamic_pointer_cast<typename Its::Module>(module);
      return its == nullptr ? ModuleCall() : Its::Of(its, function);
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

}  // namespace tandem

#endif  // TANDEM_MODELS_MODULES_MODULE_CALLS_H_
