#include "models/channels_last.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

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
  return MadeThrough([](auto make) { return Converted(make()); },
                     std::move(specs));
}

}  // namespace tandem
