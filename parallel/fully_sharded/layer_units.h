// Layer units: which parameters of a stage are sharded together, and which
// layers compute with them.

#ifndef TANDEM_PARALLEL_FULLY_SHARDED_LAYER_UNITS_H_
#define TANDEM_PARALLEL_FULLY_SHARDED_LAYER_UNITS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/model/layer.h"

namespace tandem {

struct LayerUnits {
  // By unit, for messages: "layers h.0 to h.3".
  std::vector<std::string> names;
  // By a trained parameter's full name, its first one.
  std::map<std::string, size_t> unit_of;
  // By layer, the units that it computes with, in rising order.
  std::vector<std::vector<size_t>> of_layer;
};

// Layers that follow each other make a unit, as soon as these have
// `least_parameters` numbers to train. Weights that layers of several units
// have in common are a unit of their own. Units are in the order of their first
// layers.
LayerUnits MakeLayerUnits(const LayerList& layers, int64_t least_parameters);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_FULLY_SHARDED_LAYER_UNITS_H_
