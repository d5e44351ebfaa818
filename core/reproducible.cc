#include "core/reproducible.h"

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/instancenorm.h>
#include <torch/nn/modules/pooling.h>
#include <torch/nn/modules/rnn.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/statistics_records.h"

namespace tandem {
namespace {

namespace nn = torch::nn;

// The module as a `Type`, or null.
template <typename Type>
const Type* As(const nn::Module& module) {
  return dynamic_cast<const Type*>(&module);
}

template <typename... Types>
bool DropsOut(const nn::Module& module) {
  return (
      (As<Types>(module) != nullptr && As<Types>(module)->options.p() > 0) ||
      ...);
}

template <typename... Types>
bool DropsOutInside(const nn::Module& module) {
  return ((As<Types>(module) != nullptr &&
           As<Types>(module)->options.dropout() > 0) ||
          ...);
}

template <typename... Types>
bool PoolsAtRandom(const nn::Module& module) {
  return ((As<Types>(module) != nullptr &&
           !As<Types>(module)->_random_samples.defined()) ||
          ...);
}

bool DrawsFromTheGenerator(const nn::Module& module) {
  return DropsOut<nn::DropoutImpl, nn::Dropout2dImpl, nn::Dropout3dImpl,
                  nn::AlphaDropoutImpl, nn::FeatureAlphaDropoutImpl>(module) ||
         DropsOutInside<nn::RNNImpl, nn::LSTMImpl, nn::GRUImpl,
                        nn::MultiheadAttentionImpl>(module) ||
         PoolsAtRandom<nn::FractionalMaxPool2dImpl,
                       nn::FractionalMaxPool3dImpl>(module) ||
         As<nn::RReLUImpl>(module) != nullptr;
}

template <typename... Types>
bool Tracks(const nn::Module& module) {
  return ((As<Types>(module) != nullptr &&
           As<Types>(module)->options.track_running_stats()) ||
          ...);
}

bool TakesInMicrobatchesAsTheyCome(const nn::Module& module) {
  return Tracks<nn::BatchNorm1dImpl, nn::BatchNorm2dImpl, nn::BatchNorm3dImpl,
                nn::InstanceNorm1dImpl, nn::InstanceNorm2dImpl,
                nn::InstanceNorm3dImpl>(module) &&
         As<RecordsStatistics>(module) == nullptr;
}

}  // namespace

absl::Status CheckReproducible(const LayerList& layers) {
  std::vector<std::string> refused;
  for (const Layer& layer : layers) {
    if (layer.module == nullptr) continue;
    for (const auto& item : layer.module->named_modules(layer.name)) {
      const nn::Module& module = *item.value();
      const std::string name = absl::StrCat(item.key(), " (", module.name());
      if (DrawsFromTheGenerator(module)) {
        refused.push_back(absl::StrCat(
            name, ") draws random numbers in the order in which layers run"));
      } else if (TakesInMicrobatchesAsTheyCome(module)) {
        refused.push_back(absl::StrCat(
            name,
            ") has running statistics that take in microbatches in the "
            "order in which they run"));
      }
    }
  }
  if (refused.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "this model's bits depend on the layout: ", absl::StrJoin(refused, "; "),
      ". Take layers of models/ (Dropout, BatchNorm2d), or ones that go by "
      "SampleScope and RecordsStatistics"));
}

}  // namespace tandem
