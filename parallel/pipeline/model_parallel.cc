#include "parallel/pipeline/model_parallel.h"

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/Exception.h>
#include <torch/nn/module.h>

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/device/memory_category.h"
#include "core/model/layer_links.h"
#include "core/model/layer_list.h"
#include "parallel/channel/copy_channel.h"

namespace tandem {
namespace {

// Parameters and buffers of one layer.
NamedTensors LayerTensors(const Layer& layer) {
  NamedTensors tensors = NamedParameters({layer});
  for (auto& buffer : NamedBuffers({layer})) {
    tensors.push_back(std::move(buffer));
  }
  return tensors;
}

std::string PartName(size_t part, const std::vector<c10::Device>& devices) {
  return absl::StrCat("part ", part + 1, " of ", devices.size(), ", on ",
                      devices[part].str());
}

absl::Status CheckNothingShared(const LayerList& layers,
                                const std::vector<LayerRange>& parts,
                                const std::vector<c10::Device>& devices) {
  struct Owner {
    std::string name;
    size_t part;
  };
  std::map<const c10::TensorImpl*, Owner> owners;
  for (size_t part = 0; part < parts.size(); ++part) {
    for (int64_t i = parts[part].begin; i < parts[part].end; ++i) {
      for (const auto& [name, tensor] : LayerTensors(layers[i])) {
        const auto [at, fresh] =
            owners.try_emplace(tensor.unsafeGetTensorImpl(), Owner{name, part});
        if (fresh || at->second.part == part) continue;
        return absl::InvalidArgumentError(absl::StrCat(
            at->second.name, " (", PartName(at->second.part, devices), ") and ",
            name, " (", PartName(part, devices),
            ") are one tensor, which cannot lie on two devices; cut the model ",
            "so that both are in one part, or do not share it"));
      }
    }
  }
  return absl::OkStatus();
}

using Bring = std::function<at::Tensor(const at::Tensor&)>;

// Where a layer runs.
struct Spot {
  c10::Device device;
  std::string name;  // "layer net2 (part 2 of 2, on cuda:1)"
  // What brings the input: null inside a part.
  Bring bring;
  // What brings the skips that come from another device, and further inputs, by
  // name.
  std::map<std::string, Bring> bring_skips = {};
};

void CheckOutput(const at::Tensor& output, const Spot& spot) {
  TORCH_CHECK(output.defined(), "the layer gave an undefined tensor");
  TORCH_CHECK(IsOn(output, spot.device), "the layer's output lies on ",
              output.device(), ", not on ", spot.device,
              ": what it computes with must lie on its input's device, or be a "
              "registered parameter or buffer");
}

at::Tensor Run(const Layer& layer, const Spot& spot, const at::Tensor& input,
               Skips& skips) {
  try {
    const c10::DeviceGuard guard(spot.device);
    for (const auto& [name, bring] : spot.bring_skips) {
      at::Tensor& skip = skips.at(name);
      skip = bring(skip);
    }
    at::Tensor output =
        RunLayer(layer, spot.bring ? spot.bring(input) : input, skips);
    CheckOutput(output, spot);
    return output;
  } catch (c10::Error& error) {  // keeps its type, of which a Status is made
    error.add_context(absl::StrCat("in ", spot.name));
    throw;
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(
        absl::StrCat(error.what(), " (in ", spot.name, ")"));
  }
}

Layer Placed(Layer layer, Spot spot) {
  Layer placed{layer.name, layer.module, nullptr};
  placed.links = layer.links;
  placed.forward_with_skips = [layer = std::move(layer),
                               spot = std::move(spot)](const at::Tensor& input,
                                                       Skips& skips) {
    return Run(layer, spot, input, skips);
  };
  placed.forward = [run = placed.forward_with_skips](const at::Tensor& input) {
    Skips none;
    return run(input, none);
  };
  return placed;
}

Bring To(c10::Device device) {
  return [device](const at::Tensor& input) {
    return IsOn(input, device) ? input : input.to(device);
  };
}

Bring ToNext(c10::Device from, c10::Device to) {
  const auto channel = std::make_shared<CopyChannel>(from, to);
  return [channel](const at::Tensor& x) { return channel->Copy(x); };
}

absl::Status Move(const Layer& layer, const Spot& spot) {
  if (layer.module == nullptr) return absl::OkStatus();
  const MemoryCategoryScope scope(MemoryCategory::kParameters);
  return CatchTorch([&] { layer.module->to(spot.device); },
                    absl::StrCat("moving ", spot.name));
}

}  // namespace

absl::StatusOr<LayerList> SpreadOverDevices(
    LayerList layers, const Cuts& cuts, const std::vector<c10::Device>& devices,
    const std::vector<std::string>& loss_takes) {
  const auto count = static_cast<int64_t>(layers.size());
  TANDEM_RETURN_IF_ERROR(CheckCuts(cuts, count));
  if (cuts.size() + 1 != devices.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        cuts.size(), " cuts make ", cuts.size() + 1, " parts, but there are ",
        devices.size(), " devices: each part has one"));
  }
  const std::vector<LayerRange> parts = LayerRanges(cuts, count);
  TANDEM_RETURN_IF_ERROR(CheckNothingShared(layers, parts, devices));
  TANDEM_RETURN_IF_ERROR(CheckSkips(LinksByLayer(layers), loss_takes));
  std::map<std::string, size_t> part_of_skip;
  LayerList placed;
  for (size_t part = 0; part < parts.size(); ++part) {
    for (int64_t i = parts[part].begin; i < parts[part].end; ++i) {
      Spot spot{devices[part],
                absl::StrCat("layer ", layers[i].name, " (",
                             PartName(part, devices), ")"),
                nullptr};
      TANDEM_RETURN_IF_ERROR(Move(layers[i], spot));
      if (i == parts[part].begin) {
        spot.bring = part == 0 ? To(devices[0])
                               : ToNext(devices[part - 1], devices[part]);
      }
      for (const std::string& skip : layers[i].links.pop) {
        const size_t from = part_of_skip.at(skip);
        if (from == part) continue;
        spot.bring_skips[skip] = ToNext(devices[from], devices[part]);
      }
      for (const std::string& input : layers[i].links.reads) {
        spot.bring_skips[input] = To(devices[part]);
      }
      for (const std::string& skip : layers[i].links.stash) {
        part_of_skip[skip] = part;
      }
      placed.push_back(Placed(std::move(layers[i]), std::move(spot)));
    }
  }
  return placed;
}

std::vector<int64_t> ParameterCounts(const LayerList& layers) {
  std::vector<int64_t> counts;
  std::set<const c10::TensorImpl*> seen;
  for (const Layer& layer : layers) {
    int64_t count = 0;
    for (const auto& [name, parameter] : NamedParameters({layer})) {
      const bool fresh = seen.insert(parameter.unsafeGetTensorImpl()).second;
      if (fresh) count += parameter.numel();
    }
    counts.push_back(count);
  }
  return counts;
}

std::vector<int64_t> ParameterCounts(const LayerSpecs& specs) {
  std::vector<int64_t> counts;
  for (const LayerSpec& spec : specs) {
    const LayerList layer = MakeLayers({spec}, /*seed=*/0);
    counts.push_back(ParameterCounts(layer).front());
    for (const auto& [name, parameter] : NamedParameters(layer)) {
      const std::string own = name.substr(spec.name.size() + 1);
      // Made anew here, as the layer that has it is not there.
      for (const auto& tie : spec.links.ties) {
        if (tie.first == own) counts.back() -= parameter.numel();
      }
    }
  }
  return counts;
}

}  // namespace tandem
