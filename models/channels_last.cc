#include "models/channels_last.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <cstdint>
#include <utility>

#include "core/model/layer_list.h"

namespace tandem {
namespace {

Layer Converted(Layer layer) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, parameter] : NamedParameters({layer})) {
    if (parameter.dim() != 4) continue;
    parameter.set_data(
        parameter.detach().contiguous(at::MemoryFormat::ChannelsLast));
  }
  return layer;
}

}  // namespace

LayerSpecs InChannelsLast(LayerSpecs specs) {
  for (LayerSpec& spec : specs) {
    if (spec.make) {
      spec.make = [make = std::move(spec.make)](uint64_t seed) {
        return Converted(make(seed));
      };
    }
    if (spec.make_tied) {
      spec.make_tied = [make = std::move(spec.make_tied)](
                           uint64_t seed, const NamedTensors& shared) {
        return Converted(make(seed, shared));
      };
    }
  }
  return specs;
}

}  // namespace tandem
