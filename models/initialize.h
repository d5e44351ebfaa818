// Initial values as a function of (seed, parameter name). torch::nn::init draws
// from one default generator, so that a value depends on all that was made
// before it; here each parameter has a generator of its own.
//
// Bits are the same for the same seed and name on processors for which LibTorch
// picks the same kernels.

#ifndef TANDEM_MODELS_INITIALIZE_H_
#define TANDEM_MODELS_INITIALIZE_H_

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>

namespace torch {
namespace nn {
class Module;
}  // namespace nn
}  // namespace torch

namespace tandem {

// A parameter that is to be given its values.
struct InitialParameter {
  std::string name;                // in full: "layer1.0.conv1.weight"
  at::Tensor values;               // to be overwritten
  const torch::nn::Module& owner;  // the module that registered it
  at::Generator generator;         // its own
};

// Overwrites a parameter's values. Runs without gradients.
using InitialRule = std::function<void(const InitialParameter&)>;

// What torch.nn's modules do when they are made (reset_parameters):
//   Linear, Conv1d/2d/3d   weight and bias from U(-b, b), b = 1 / sqrt(fan_in),
//                          which is kaiming_uniform(a = sqrt(5))
//   BatchNorm, LayerNorm   weight 1, bias 0
//   Embedding              weight from N(0, 1)
// Any other module with parameters of its own needs a rule of its own: CHECK.
void PytorchDefault(const InitialParameter& parameter);

// Fills every parameter of `module` and its children. `prefix` is the layer's
// name: the module's own `weight` is "PREFIX.weight".
void Initialize(torch::nn::Module& module, const std::string& prefix,
                uint64_t seed, const InitialRule& rule = PytorchDefault);

}  // namespace tandem

#endif  // TANDEM_MODELS_INITIALIZE_H_
