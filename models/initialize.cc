#include "models/initialize.h"

#include <glog/logging.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <cmath>

#include "absl/strings/match.h"
#include "core/random.h"

namespace tandem {
namespace {

namespace nn = torch::nn;

template <typename... Impl>
bool IsAny(const nn::Module& module) {
  return ((dynamic_cast<const Impl*>(&module) != nullptr) || ...);
}

bool IsNormalization(const nn::Module& module) {
  return IsAny<nn::BatchNorm1dImpl, nn::BatchNorm2dImpl, nn::BatchNorm3dImpl,
               nn::LayerNormImpl>(module);
}

bool IsAffine(const nn::Module& module) {
  return IsAny<nn::LinearImpl, nn::Conv1dImpl, nn::Conv2dImpl, nn::Conv3dImpl>(
      module);
}

// Inputs that go into one output: what stands behind the first dimension. Also
// the bias's bound depends on it, so it is the weight that is asked.
int64_t FanIn(const nn::Module& module) {
  const at::Tensor weight = module.named_parameters(false)["weight"];
  return weight.numel() / weight.size(0);
}

}  // namespace

void PytorchDefault(const InitialParameter& parameter) {
  if (IsNormalization(parameter.owner)) {
    parameter.values.fill_(absl::EndsWith(parameter.name, "bias") ? 0 : 1);
  } else if (IsAffine(parameter.owner)) {
    const double bound = 1 / std::sqrt(FanIn(parameter.owner));
    parameter.values.uniform_(-bound, bound, parameter.generator);
  } else if (IsAny<nn::EmbeddingImpl>(parameter.owner)) {
    parameter.values.normal_(0, 1, parameter.generator);
  } else {
    LOG(FATAL) << "no default initial values for " << parameter.name << " of "
               << parameter.owner.name() << ": give Initialize a rule for it";
  }
}

void Initialize(nn::Module& module, const std::string& prefix, uint64_t seed,
                const InitialRule& rule) {
  torch::NoGradGuard no_grad;
  for (const auto& item : module.named_parameters(/*recurse=*/false)) {
    const std::string name = prefix + "." + item.key();
    rule({name, item.value(), module, GeneratorFor(seed, name)});
  }
  for (const auto& child : module.named_children()) {
    Initialize(*child.value(), prefix + "." + child.key(), seed, rule);
  }
}

}  // namespace tandem
