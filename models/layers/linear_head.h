// Linear head: the last layer of a model, whose weight a loss takes in its
// stead.

#ifndef TANDEM_MODELS_LAYERS_LINEAR_HEAD_H_
#define TANDEM_MODELS_LAYERS_LINEAR_HEAD_H_

#include <ATen/core/Tensor.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/model/layer.h"

namespace tandem {

// InvalidArgument where the last layer is not linear, or takes or leaves skips.
// `what` needs one: "a loss in chunks".
absl::Status CheckEndsInLinear(const LayerSpecs& specs, absl::string_view what);

// The parameter "weight" of a layer that has no other. Throws c10::ValueError
// where it has none, or others too. `takes`: who wants it, and what for.
at::Tensor OnlyWeight(const Layer& layer, absl::string_view takes);

}  // namespace tandem

#endif  // TANDEM_MODELS_LAYERS_LINEAR_HEAD_H_
