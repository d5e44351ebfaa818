#include "core/model/layer_list.h"

#include <c10/util/Exception.h>
#include <torch/nn/module.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/device/memory_category.h"
#include "core/model/layer_links.h"

namespace tandem {
namespace {

void Append(const std::string& layer, const NamedTensors::value_type& tensor,
            NamedTensors& all) {
  all.emplace_back(layer + "." + tensor.first, tensor.second);
}

// The parameters that the spec's layer is tied to and that are there, by their
// names in that layer.
NamedTensors SharedWith(const LayerSpec& spec, const LayerList& layers) {
  const NamedTensors all = NamedParameters(layers);
  NamedTensors shared;
  for (const auto& [own, other] : spec.links.ties) {
    for (const auto& [name, tensor] : all) {
      if (name == other) shared.emplace_back(own, tensor);
    }
  }
  return shared;
}

Layer Make(const LayerSpec& spec, uint64_t seed, const LayerList& layers) {
  const bool is_tied = !spec.links.ties.empty();
  TORCH_CHECK(is_tied ? spec.make_tied != nullptr : spec.make != nullptr,
              "layer ", spec.name, " has no ", is_tied ? "make_tied" : "make",
              " in its spec, which says how it is made");
  return is_tied ? spec.make_tied(seed, SharedWith(spec, layers))
                 : spec.make(seed);
}

// What a spec says of parameters, and what the places of these come to.
TraitsByName Placed(TraitsByName said, const TraitsByName& places) {
  for (const auto& [name, place] : places) {
    said[name] = WithPlace(said[name], place);
  }
  return said;
}

void CheckTraits(const Layer& layer) {
  for (const auto& [name, traits] : layer.traits) {
    bool is_there = false;
    if (layer.module != nullptr) {
      is_there = layer.module->named_parameters().contains(name);
    }
    TORCH_CHECK(is_there, "layer ", layer.name, " has no parameter '", name,
                "', of which its spec says: ", Describe(traits));
    TORCH_CHECK(traits.optimizer_group >= 0, "parameter ", layer.name, ".",
                name, " is in optimizer group ", traits.optimizer_group,
                ": groups count from 0");
  }
}

// What a layer's links say that it leaves must be there.
void CheckLeft(const Layer& layer, const Skips& skips) {
  for (const std::string& skip : layer.links.stash) {
    TORCH_CHECK(skips.count(skip) == 1, "layer ", layer.name,
                " has not left the skip connection '", skip,
                "', which its links.stash declare");
    TORCH_CHECK(skips.at(skip).defined(), "layer ", layer.name,
                " has left an undefined tensor as the skip connection '", skip,
                "': leave at::zeros(...), or none and no links.stash");
  }
  for (const std::string& name : layer.links.reads) {
    TORCH_CHECK(skips.count(name) == 1, "layer ", layer.name,
                " has taken the further input '", name,
                "' out of the map, which others may read: leave it there");
  }
}

at::Tensor Defined(const Layer& layer, at::Tensor output) {
  TORCH_CHECK(output.defined(), "layer ", layer.name,
              " has given an undefined tensor");
  return output;
}

}  // namespace

LayerList MakeLayers(const LayerSpecs& specs, uint64_t seed) {
  LayerList layers;
  layers.reserve(specs.size());
  for (const LayerSpec& spec : specs) {
    layers.push_back(Make(spec, seed, layers));
    layers.back().links = spec.links;
    layers.back().traits = Placed(spec.traits, layers.back().traits);
    CheckTraits(layers.back());
  }
  return layers;
}

LayerSpecs SpecsFromLayers(const LayerList& layers) {
  LayerSpecs specs;
  for (const Layer& layer : layers) {
    LayerSpec spec;
    spec.name = layer.name;
    spec.make = [layer](uint64_t) { return layer; };
    spec.links = layer.links;
    spec.links.ties.clear();  // it is tied
    spec.traits = layer.traits;
    specs.push_back(std::move(spec));
  }
  return specs;
}

at::Tensor RunLayer(const Layer& layer, const at::Tensor& input, Skips& skips) {
  const bool has_skips = layer.links.has_skips();
  TORCH_CHECK(has_skips ? layer.forward_with_skips != nullptr
                        : layer.forward != nullptr,
              "layer ", layer.name, " has no forward",
              has_skips ? "_with_skips, which its links ask for" : "");
  if (!has_skips) return Defined(layer, layer.forward(input));
  for (const std::string& name : layer.links.reads) {
    TORCH_CHECK(skips.count(name) > 0, "layer ", layer.name,
                " reads the further input '", name, "', which is not there");
  }
  Skips taken;
  for (const std::string& skip : layer.links.pop) {
    TORCH_CHECK(skips.count(skip) > 0, "layer ", layer.name,
                " takes the skip connection '", skip, "', which is not there");
    taken[skip] = skips.at(skip);
  }
  at::Tensor output = layer.forward_with_skips(input, skips);
  CheckLeft(layer, skips);
  // Others may take it, too.
  for (const auto& [name, skip] : taken) {
    if (!absl::c_linear_search(layer.links.stash, name)) skips[name] = skip;
  }
  return Defined(layer, std::move(output));
}

at::Tensor Forward(const LayerList& layers, const at::Tensor& input,
                   Skips further) {
  return ForwardWithSkips(layers, input, std::move(further), {}).first;
}

std::pair<at::Tensor, Skips> ForwardWithSkips(
    const LayerList& layers, const at::Tensor& input, Skips further,
    const std::vector<std::string>& names) {
  at::Tensor x = input;
  Skips skips = std::move(further);
  const std::vector<std::vector<std::string>> last =
      LastPops(LinksByLayer(layers), names);
  for (size_t i = 0; i < layers.size(); ++i) {
    x = RunLayer(layers[i], x, skips);
    for (const std::string& skip : last[i]) skips.erase(skip);
  }
  Skips left;
  for (const std::string& name : names) left[name] = skips.at(name);
  return {x, std::move(left)};
}

std::vector<LayerLinks> LinksByLayer(const LayerList& layers) {
  std::vector<LayerLinks> links;
  for (const Layer& layer : layers) links.push_back(layer.links);
  return links;
}

std::vector<LayerLinks> LinksByLayer(const LayerSpecs& specs) {
  std::vector<LayerLinks> links;
  for (const LayerSpec& spec : specs) links.push_back(spec.links);
  return links;
}

NamedTensors NamedParameters(const LayerList& layers) {
  NamedTensors all;
  for (const Layer& layer : layers) {
    if (layer.module == nullptr) continue;
    for (const auto& item : layer.module->named_parameters()) {
      Append(layer.name, item.pair(), all);
    }
  }
  return all;
}

TraitsByName NamedTraits(const LayerList& layers) {
  TraitsByName all;
  for (const Layer& layer : layers) {
    for (const auto& [name, traits] : layer.traits) {
      all[layer.name + "." + name] = traits;
    }
  }
  return all;
}

NamedTensors NamedBuffers(const LayerList& layers) {
  NamedTensors all;
  for (const Layer& layer : layers) {
    if (layer.module == nullptr) continue;
    for (const auto& item : layer.module->named_buffers()) {
      Append(layer.name, item.pair(), all);
    }
  }
  return all;
}

void SetTraining(const LayerList& layers, bool on) {
  for (const Layer& layer : layers) {
    if (layer.module != nullptr) layer.module->train(on);
  }
}

absl::Status MoveLayers(const LayerList& layers, c10::Device device) {
  const MemoryCategoryScope scope(MemoryCategory::kParameters);
  for (const Layer& layer : layers) {
    if (layer.module == nullptr) continue;
    TANDEM_RETURN_IF_ERROR(
        CatchTorch([&] { layer.module->to(device); },
                   absl::StrCat("moving layer ", layer.name)));
  }
  return absl::OkStatus();
}

absl::Status MoveUntrained(const LayerList& layers, c10::Device device) {
  const MemoryCategoryScope scope(MemoryCategory::kParameters);
  for (const Layer& layer : layers) {
    NamedTensors moved = NamedBuffers({layer});
    for (const auto& each : NamedParameters({layer})) {
      if (!each.second.requires_grad()) moved.push_back(each);
    }
    TANDEM_RETURN_IF_ERROR(CatchTorch(
        [&] {
          for (auto& each : moved) {
            each.second.set_data(each.second.data().to(device));
          }
        },
        absl::StrCat("moving layer ", layer.name)));
  }
  return absl::OkStatus();
}

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
std::vector<std::string> LayerNames(const Layers& layers) {
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
  return CheckLayerNames(LayerNames(specs));
}

absl::Status CheckLayerNames(const LayerList& layers) {
  return CheckLayerNames(LayerNames(layers));
}

absl::StatusOr<LayerList> MakeModelLayers(const LayerSpecs& specs,
                                          uint64_t seed) {
  TANDEM_RETURN_IF_ERROR(CheckLayerNames(specs));
  return CatchTorchOr([&] { return MakeLayers(specs, seed); },
                      "making the model");
}

}  // namespace tandem
