#include "core/model/reproducible.h"

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/instancenorm.h>
#include <torch/nn/modules/pooling.h>
#include <torch/nn/modules/rnn.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/short_list.h"
#include "core/model/statistics_records.h"

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

bool DropsOutBetweenLayers(const nn::Module& module) {
  return DropsOutInside<nn::RNNImpl, nn::LSTMImpl, nn::GRUImpl>(module);
}

bool DrawsFromTheGenerator(const nn::Module& module) {
  return DropsOut<nn::DropoutImpl, nn::Dropout2dImpl, nn::Dropout3dImpl,
                  nn::AlphaDropoutImpl, nn::FeatureAlphaDropoutImpl>(module) ||
         DropsOutInside<nn::MultiheadAttentionImpl>(module) ||
         DropsOutBetweenLayers(module) ||
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

// "name (type) objection" of each module to which there is one.
template <typename Objection>
std::vector<std::string> Refused(const LayerList& layers, Objection objection) {
  std::vector<std::string> refused;
  for (const Layer& layer : layers) {
    if (layer.module == nullptr) continue;
    for (const auto& item : layer.module->named_modules(layer.name)) {
      const std::string why = objection(*item.value());
      if (why.empty()) continue;
      refused.push_back(
          absl::StrCat(item.key(), " (", item.value()->name(), ") ", why));
    }
  }
  return refused;
}

std::string DependsOnTheLayout(const nn::Module& module) {
  if (DrawsFromTheGenerator(module)) {
    return "draws random numbers in the order in which layers run";
  }
  if (TakesInMicrobatchesAsTheyCome(module)) {
    return "has running statistics that take in microbatches in the order in "
           "which they run";
  }
  return "";
}

}  // namespace

absl::Status CheckReproducible(const LayerList& layers) {
  const std::vector<std::string> refused = Refused(layers, DependsOnTheLayout);
  if (refused.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "this model's bits depend on the layout: ",
      ShortList(refused, /*most=*/8, "; "),
      ". Take layers of models/ (Dropout, BatchNorm2d), or ones that go by "
      "SampleScope and RecordsStatistics"));
}

absl::Status CheckRecomputable(const LayerList& layers, c10::Device device) {
  if (!device.is_cuda()) return absl::OkStatus();
  const std::vector<std::string> refused =
      Refused(layers, [](const nn::Module& module) {
        return DropsOutBetweenLayers(module) ? "drops out inside of cuDNN" : "";
      });
  if (refused.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "activation checkpointing on ", device.str(),
      " would draw other numbers when activations are computed again: ",
      ShortList(refused, /*most=*/8, "; "),
      ". Make the module without dropout, with a Dropout layer between single "
      "ones, or keep activations"));
}

}  // namespace tandem
