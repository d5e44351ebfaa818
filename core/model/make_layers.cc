#include "core/model/make_layers.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/model/layer_list.h"

namespace tandem {

LayerSpec MadeThrough(const AroundMake& around, LayerSpec spec) {
  if (spec.make) {
    spec.make = [around, make = std::move(spec.make)](uint64_t seed) {
      return around([&] { return make(seed); });
    };
  }
  if (spec.make_tied) {
    spec.make_tied = [around, make = std::move(spec.make_tied)](
                         uint64_t seed, const NamedTensors& shared) {
      return around([&] { return make(seed, shared); });
    };
  }
  return spec;
}

LayerSpecs MadeThrough(const AroundMake& around, LayerSpecs specs) {
  for (LayerSpec& spec : specs) spec = MadeThrough(around, std::move(spec));
  return specs;
}

namespace {

template <typename Layers>
std::vector<std::string> NamesOf(const Layers& layers) {
  std::vector<std::string> names;
  for (const auto& layer : layers) names.push_back(layer.name);
  return names;
}

}  // namespace

absl::Status CheckLayerNames(const std::vector<std::string>& names) {
  std::map<std::string, size_t> first;
  for (size_t i = 0; i < names.size(); ++i) {
    const auto [found, is_new] = first.emplace(names[i], i);
    if (is_new) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "layers ", found->second, " and ", i, " are both called '", names[i],
        "': each needs a name of its own, which its parameters' names and "
        "initial values go by"));
  }
  return absl::OkStatus();
}

absl::Status CheckLayerNames(const LayerSpecs& specs) {
  return CheckLayerNames(NamesOf(specs));
}

absl::Status CheckLayerNames(const LayerList& layers) {
  return CheckLayerNames(NamesOf(layers));
}

absl::StatusOr<LayerList> MakeModelLayers(const LayerSpecs& specs,
                                          uint64_t seed) {
  TANDEM_RETURN_IF_ERROR(CheckLayerNames(specs));
  return CatchTorchOr([&] { return MakeLayers(specs, seed); },
                      "making the model");
}

}  // namespace tandem
