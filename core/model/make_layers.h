// Model construction with errors as values: what can go wrong in layers that
// are not tandem's own.

#ifndef TANDEM_CORE_MODEL_MAKE_LAYERS_H_
#define TANDEM_CORE_MODEL_MAKE_LAYERS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/model/layer.h"

namespace tandem {

// Layer maker: what a spec does to make its layer, wrapped by another.

// Calls `make` once, and gives its layer, or one made of it.
using AroundMake = std::function<Layer(absl::FunctionRef<Layer()> make)>;

// The same spec, but that its layer, tied to others or not, is made through
// `around`.
LayerSpec MadeThrough(const AroundMake& around, LayerSpec spec);
LayerSpecs MadeThrough(const AroundMake& around, LayerSpecs specs);

// Whether each layer has a name of its own: two of one name would have the same
// parameters' names. InvalidArgument, naming both by number.
absl::Status CheckLayerNames(const std::vector<std::string>& names);
absl::Status CheckLayerNames(const LayerSpecs& specs);
absl::Status CheckLayerNames(const LayerList& layers);

// MakeLayers (core/model/layer_list.h) of a whole model, with its names
// checked. What a layer's own `make` throws (a parameter without a rule for its
// initial values, say) becomes an error that names the layer.
absl::StatusOr<LayerList> MakeModelLayers(const LayerSpecs& specs,
                                          uint64_t seed);

}  // namespace tandem

#endif  // TANDEM_CORE_MODEL_MAKE_LAYERS_H_
