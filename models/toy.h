// The toy models of PyTorch's tutorial "Getting Started with Distributed Data
// Parallel": ToyModel, and ToyMpModel, which puts net1 on one device and net2
// on another.

#ifndef TANDEM_MODELS_TOY_H_
#define TANDEM_MODELS_TOY_H_

#include <cstdint>

#include "core/model/layer.h"

namespace tandem {

constexpr int64_t kToyInputs = 10;
constexpr int64_t kToyOutputs = 5;

// [n, 10] -> [n, 5]. Layers: net1 (Linear 10 -> 10), relu, net2 (Linear 10 ->
// 5).
LayerSpecs ToyModel();

// The same layers: where a layer runs is no part of a model here. Cut in front
// of layer kToyMpCut it is the tutorial's, net1 and relu on the first device.
LayerSpecs ToyMpModel();
constexpr int64_t kToyMpCut = 2;

}  // namespace tandem

#endif  // TANDEM_MODELS_TOY_H_
