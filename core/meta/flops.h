// FLOPs of a model: the floating-point operations of its matrix products,
// convolutions and attention (torch.utils.flop_counter's FlopCounterMode).

#ifndef TANDEM_CORE_META_FLOPS_H_
#define TANDEM_CORE_META_FLOPS_H_

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/layer.h"

namespace tandem {

// FLOPs of one sample's forward pass, a multiplication and an addition being
// two; for attention all scores count, also those that a causal mask hides (as
// PaLM's appendix B, 2204.02311, and PyTorch's counter do). Backward has twice
// as many.
//
// `input_shape` is a sample's, without the batch dimension. The model is run
// once on the meta device: nothing is allocated. Errors as ModelShapes, and
// what the layers throw, some of which may need real values (Unimplemented or
// InvalidArgument). Thread-safe.
absl::StatusOr<double> ForwardFlops(const LayerSpecs& specs,
                                    const std::vector<int64_t>& input_shape,
                                    c10::ScalarType dtype);

}  // namespace tandem

#endif  // TANDEM_CORE_META_FLOPS_H_
