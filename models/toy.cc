#include "models/toy.h"

#include "models/layers/basic_layers.h"

namespace tandem {

LayerSpecs ToyModel() {
  return {
      LinearLayer("net1", kToyInputs, kToyInputs),
      ReluLayer("relu"),
      LinearLayer("net2", kToyInputs, kToyOutputs),
  };
}

LayerSpecs ToyMpModel() { return ToyModel(); }

}  // namespace tandem
