// Finite checks of layers: the first layer whose output, or whose output's
// gradient, is infinite or NaN, by name (torch.autograd.detect_anomaly for a
// list of layers).

#ifndef TANDEM_CORE_FINITE_CHECKED_LAYERS_H_
#define TANDEM_CORE_FINITE_CHECKED_LAYERS_H_

#include "core/model/layer.h"

namespace tandem {

struct FiniteChecks {
  // Gradients of outputs, too: not where a loss is scaled and gradients that
  // overflow are expected.
  bool gradients = true;
};

// The same layers, with the same bits. One whose output has a value that is not
// finite throws std::out_of_range, which says where the first one is, and
// whether what came in and its parameters were finite; backward does where the
// gradient that comes to its output has one. Tensors of floating point that it
// stashes for later layers are outputs as well.
//
// Each check reads a tensor once, and waits for its device.
LayerSpecs CheckedLayers(LayerSpecs specs, const FiniteChecks& checks = {});

}  // namespace tandem

#endif  // TANDEM_CORE_FINITE_CHECKED_LAYERS_H_
