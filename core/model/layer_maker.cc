#include "core/model/layer_maker.h"

#include <cstdint>
#include <utility>

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

}  // namespace tandem
