// LoRA (low-rank adaptation; Hu et al., "LoRA: Low-Rank Adaptation of Large
// Language Models", 2106.09685; PEFT's LoraConfig): linear layers of a frozen
// model, each with the product of two small matrices beside its own, which
// alone are trained:
//
//   y = W x + b + alpha / rank * B (A dropout(x))
//
// The adapter of NAME.weight has the state names NAME.lora_A.weight [rank,
// inputs] and NAME.lora_B.weight [outputs, rank], however the weight itself is
// stored. B is zero at first, so that training begins with what the model
// computed. Everything else takes no gradient: it has no optimizer state, and
// nothing of it goes between replicas. Buffers (BatchNorm's statistics) go on
// as they do without.

#ifndef TANDEM_MODELS_LORA_LORA_H_
#define TANDEM_MODELS_LORA_LORA_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/model/layer.h"
#include "models/functions/linear_function.h"

namespace torch {
namespace nn {
class Module;
}  // namespace nn
}  // namespace torch

namespace tandem {

struct LoraOptions {
  int64_t rank = 8;  // PEFT's r
  double alpha = 8;  // PEFT's lora_alpha
  // Names of linear weights that a regular expression (ECMAScript's) matches in
  // part at least. Unless told, what PEFT adapts of GPT-2 and of Llama.
  std::string on = "c_attn|q_proj|v_proj";
  // Dropout of what A takes, in training; the draws are a function of the
  // sample (models/layers/dropout.h).
  double dropout = 0;

  double scaling() const { return alpha / static_cast<double>(rank); }
};

// A linear weight that has an adapter.
struct LoraTarget {
  std::string weight;  // in full: "transformer.h.0.attn.c_attn.weight"
  std::string module;  // whose it is: "transformer.h.0.attn.c_attn"
  WeightLayout layout = WeightLayout::kOutIn;
  int64_t inputs = 0;
  int64_t outputs = 0;
};

// InvalidArgument for a rank below 1, an alpha that is no number, a dropout
// that is not from 0 to 1, and for what is no regular expression.
absl::Status CheckLora(const LoraOptions& options);

// What `options.on` names of a model, in the model's order. Known of a layer
// are the weights of AdaptableLinear modules (Linear of
// models/layers/basic_modules.h, of which tandem's own models are made, GPT-2's
// Conv1D, a ViT's in_proj_weight), and of a torch::nn::Linear that is a layer
// by itself. Takes no memory for values.
//
// InvalidArgument where CheckLora says so; where nothing is matched, naming
// eight of the weights that there are; and, by name, for what is matched and
// cannot be adapted: a weight that is tied to another layer's, one that the
// loss takes in its layer's stead (models/chunked_loss.h), and that of a
// torch::nn::Linear inside of another module.
absl::StatusOr<std::vector<LoraTarget>> LoraTargets(const LayerSpecs& specs,
                                                    const LoraOptions& options);

// The model with adapters, frozen but for them. Initial values of A are
// kaiming_uniform(a = sqrt(5)), a function of the seed and A's name, those of B
// zero, as PEFT's. Layers that are made already (SpecsFromLayers, LayersOf) are
// themselves changed when they are made. Errors are LoraTargets'.
absl::StatusOr<LayerSpecs> WithLora(LayerSpecs specs,
                                    const LoraOptions& options);

// The same of a module that is there, for a loop of one's own
// (DistributedDataParallel trains what requires a gradient). Its linear layers
// are to be tandem::Linear (models/layers/basic_modules.h), which is a
// torch::nn::LinearImpl; a torch::nn::Linear is refused by name. Names are
// those of named_parameters(), on which initial values depend.
absl::Status AddLora(const std::shared_ptr<torch::nn::Module>& module,
                     uint64_t seed, const LoraOptions& options);

// Whether the parameter is an adapter's: it ends in lora_A.weight or
// lora_B.weight.
bool IsLoraParameter(absl::string_view name);

}  // namespace tandem

#endif  // TANDEM_MODELS_LORA_LORA_H_
