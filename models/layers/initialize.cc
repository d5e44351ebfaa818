#include "models/layers/initialize.h"

#include <c10/util/Exception.h>
#include <c10/util/accumulate.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/instancenorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/modules/transformer.h>

#include <cmath>
#include <optional>
#include <vector>

#include "absl/strings/match.h"
#include "core/random/random.h"

namespace tandem {
namespace {

namespace nn = torch::nn;

template <typename... Impl>
bool IsAny(const nn::Module& module) {
  return ((dynamic_cast<const Impl*>(&module) != nullptr) || ...);
}

bool IsNormalization(const nn::Module& module) {
  return IsAny<nn::BatchNorm1dImpl, nn::BatchNorm2dImpl, nn::BatchNorm3dImpl,
               nn::InstanceNorm1dImpl, nn::InstanceNorm2dImpl,
               nn::InstanceNorm3dImpl, nn::LayerNormImpl, nn::GroupNormImpl>(
      module);
}

bool IsAffine(const nn::Module& module) {
  return IsAny<nn::LinearImpl, nn::Conv1dImpl, nn::Conv2dImpl, nn::Conv3dImpl,
               nn::ConvTranspose1dImpl, nn::ConvTranspose2dImpl,
               nn::ConvTranspose3dImpl>(module);
}

at::Tensor ModuleWeight(const nn::Module& module) {
  return module.named_parameters(false)["weight"];
}

// Inputs that go into one output: what stands behind the first dimension. Also
// the bias's bound depends on it, so it is the weight that is asked.
int64_t FanIn(const nn::Module& module) {
  return c10::multiply_integers(ModuleWeight(module).sizes().slice(1));
}

// One over the root; 0 for what has none.
double RootBound(int64_t inputs) {
  return inputs > 0 ? 1 / std::sqrt(inputs) : 0;
}

std::optional<int64_t> HiddenSize(const nn::Module& module) {
  if (const auto* rnn = dynamic_cast<const nn::RNNImpl*>(&module)) {
    return rnn->options_base.hidden_size();
  }
  if (const auto* lstm = dynamic_cast<const nn::LSTMImpl*>(&module)) {
    return lstm->options_base.hidden_size();
  }
  if (const auto* gru = dynamic_cast<const nn::GRUImpl*>(&module)) {
    return gru->options_base.hidden_size();
  }
  if (!IsAny<nn::RNNCellImpl, nn::LSTMCellImpl, nn::GRUCellImpl>(module)) {
    return std::nullopt;
  }
  return module.named_parameters(false)["weight_hh"].size(1);
}

// Half the width of the uniform distribution that all of the owner's parameters
// are from; none: they are from another.
std::optional<double> UniformBound(const nn::Module& owner) {
  if (IsAffine(owner)) return RootBound(FanIn(owner));
  if (IsAny<nn::BilinearImpl>(owner)) {
    return RootBound(ModuleWeight(owner).size(1));
  }
  const std::optional<int64_t> hidden = HiddenSize(owner);
  if (!hidden.has_value()) return std::nullopt;
  return RootBound(*hidden);
}

std::optional<int64_t> PaddingIndex(const nn::Module& module) {
  if (const auto* one = dynamic_cast<const nn::EmbeddingImpl*>(&module)) {
    return one->options.padding_idx();
  }
  return dynamic_cast<const nn::EmbeddingBagImpl&>(module)
      .options.padding_idx();
}

void FillEmbedding(const InitialParameter& parameter) {
  parameter.values.normal_(0, 1, parameter.generator);
  const std::optional<int64_t> padding = PaddingIndex(parameter.owner);
  if (padding.has_value()) parameter.values.select(0, *padding).fill_(0);
}

// Glorot's: the variance is 2 / (fan_in + fan_out), which are the sizes of the
// first two dimensions times all others.
double XavierVariance(const at::Tensor& values) {
  const auto others = static_cast<double>(values[0][0].numel());
  return 2 / (others * static_cast<double>(values.size(0) + values.size(1)));
}

void FillXavierUniform(const InitialParameter& parameter) {
  const double bound = std::sqrt(3 * XavierVariance(parameter.values));
  parameter.values.uniform_(-bound, bound, parameter.generator);
}

void FillAttention(const InitialParameter& parameter) {
  const bool is_further_token = absl::EndsWith(parameter.name, "bias_k") ||
                                absl::EndsWith(parameter.name, "bias_v");
  if (is_further_token) {
    parameter.values.normal_(0, std::sqrt(XavierVariance(parameter.values)),
                             parameter.generator);
  } else if (parameter.values.dim() > 1) {
    FillXavierUniform(parameter);
  } else {
    parameter.values.fill_(0);
  }
}

// What the modules around a parameter do to it after its owner has.
bool FillAsPartOfOthers(const InitialParameter& parameter) {
  for (const nn::Module* module : parameter.around) {
    if (!IsAny<nn::TransformerImpl>(*module)) continue;
    if (parameter.values.dim() < 2) break;
    FillXavierUniform(parameter);
    return true;
  }
  const bool is_bias_of_attention =
      !parameter.around.empty() &&
      IsAny<nn::MultiheadAttentionImpl>(*parameter.around.back()) &&
      absl::EndsWith(parameter.name, "out_proj.bias");
  if (is_bias_of_attention) parameter.values.fill_(0);
  return is_bias_of_attention;
}

using Around = std::vector<const nn::Module*>;

void InitializeTree(nn::Module& module, const std::string& prefix,
                    uint64_t seed, const InitialRule& rule, Around* around) {
  for (const auto& item : module.named_parameters(/*recurse=*/false)) {
    const std::string name = prefix + "." + item.key();
    rule({name, item.value(), module, GeneratorFor(seed, name), *around});
  }
  around->push_back(&module);
  for (const auto& child : module.named_children()) {
    InitializeTree(*child.value(), prefix + "." + child.key(), seed, rule,
                   around);
  }
  around->pop_back();
}

}  // namespace

void PytorchDefault(const InitialParameter& parameter) {
  const nn::Module& owner = parameter.owner;
  if (FillAsPartOfOthers(parameter)) return;
  if (IsNormalization(owner)) {
    parameter.values.fill_(absl::EndsWith(parameter.name, "bias") ? 0 : 1);
  } else if (const std::optional<double> bound = UniformBound(owner)) {
    parameter.values.uniform_(-*bound, *bound, parameter.generator);
  } else if (IsAny<nn::EmbeddingImpl, nn::EmbeddingBagImpl>(owner)) {
    FillEmbedding(parameter);
  } else if (IsAny<nn::MultiheadAttentionImpl>(owner)) {
    FillAttention(parameter);
  } else if (const auto* prelu = dynamic_cast<const nn::PReLUImpl*>(&owner)) {
    parameter.values.fill_(prelu->options.init());
  } else {
    TORCH_CHECK(false, "no default initial values for ", parameter.name,
                " of module ", owner.name(),
                ": give its layer a rule for it (models/layers/initialize.h)");
  }
}

void Initialize(nn::Module& module, const std::string& prefix, uint64_t seed,
                const InitialRule& rule) {
  torch::NoGradGuard no_grad;
  Around around;
  InitializeTree(module, prefix, seed, rule, &around);
}

}  // namespace tandem
