// Call of a torch::nn::AnyModule: a child of torch::nn::Sequential, whose class
// nobody names.

#ifndef TANDEM_MODELS_MODULES_ANY_MODULE_CALL_H_
#define TANDEM_MODELS_MODULES_ANY_MODULE_CALL_H_

#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/sequential.h>

#include <memory>

#include "models/modules/module_call.h"

namespace tandem {

// The module is given one argument, as Sequential gives it: a tensor,
// std::tuple of two to four, std::vector or, for a dict,
// std::map<std::string, Tensor>. It may give any of these, c10::Dict and
// torch::OrderedDict of tensors. Throws c10::TypeError, which says what to do,
// for anything else.
ModuleCall CallOfAny(const torch::nn::AnyModule& module);

// All of its modules, one after the other.
ModuleCall CallOfSequential(
    const std::shared_ptr<torch::nn::SequentialImpl>& sequential);

}  // namespace tandem

#endif  // TANDEM_MODELS_MODULES_ANY_MODULE_CALL_H_
