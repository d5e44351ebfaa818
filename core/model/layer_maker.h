// Layer maker: what a spec does to make its layer, wrapped by another.

#ifndef TANDEM_CORE_MODEL_LAYER_MAKER_H_
#define TANDEM_CORE_MODEL_LAYER_MAKER_H_

#include <functional>

#include "absl/functional/function_ref.h"
#include "core/model/layer.h"

namespace tandem {

// Calls `make` once, and gives its layer, or one made of it.
using AroundMake = std::function<Layer(absl::FunctionRef<Layer()> make)>;

// The same spec, but that its layer, tied to others or not, is made through
// `around`.
LayerSpec MadeThrough(const AroundMake& around, LayerSpec spec);
LayerSpecs MadeThrough(const AroundMake& around, LayerSpecs specs);

}  // namespace tandem

#endif  // TANDEM_CORE_MODEL_LAYER_MAKER_H_
