// Initial values as a function of (seed, parameter name). torch::nn::init draws
// from one default generator, so that a value depends on all that was made
// before it; here each parameter has a generator of its own.
//
// Bits are the same for the same seed and name on processors for which LibTorch
// picks the same kernels.

#ifndef TANDEM_MODELS_LAYERS_INITIALIZE_H_
#define TANDEM_MODELS_LAYERS_INITIALIZE_H_

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

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
  // The modules around the owner, from the outermost to its parent.
  std::vector<const torch::nn::Module*> around = {};
};

// Overwrites a parameter's values. Runs without gradients.
using InitialRule = std::function<void(const InitialParameter&)>;

// What torch.nn's modules do when they are made (reset_parameters):
//   Linear, Conv1d/2d/3d, ConvTranspose1d/2d/3d
//                          weight and bias from U(-b, b), b = 1 / sqrt(fan_in),
//                          which is kaiming_uniform(a = sqrt(5))
//   Bilinear               the same, b = 1 / sqrt(in1_features)
//   RNN, LSTM, GRU, their cells
//                          all from U(-b, b), b = 1 / sqrt(hidden_size)
//   BatchNorm, InstanceNorm, LayerNorm, GroupNorm
//                          weight 1, bias 0
//   Embedding, EmbeddingBag
//                          weight from N(0, 1), but for padding_idx's row: 0
//   MultiheadAttention     projections into it xavier_uniform, biases 0, also
//                          its out_proj's; bias_k, bias_v xavier_normal
//   PReLU                  options.init()
//   Transformer            xavier_uniform for all matrices inside
// and so all that is made of them (TransformerEncoderLayer,
// AdaptiveLogSoftmaxWithLoss). Any other module with parameters of its own
// needs a rule of its own: throws c10::Error, naming parameter and module.
void PytorchDefault(const InitialParameter& parameter);

// Leaves the values that the module's constructor gave it: for any module, with
// parameters of its own or values that were read from a file.
inline void KeepsItsValues(const InitialParameter&) {}

// Fills every parameter of `module` and its children. `prefix` is the layer's
// name: the module's own `weight` is "PREFIX.weight".
void Initialize(torch::nn::Module& module, const std::string& prefix,
                uint64_t seed, const InitialRule& rule = PytorchDefault);

}  // namespace tandem

#endif  // TANDEM_MODELS_LAYERS_INITIALIZE_H_
