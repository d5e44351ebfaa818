// Fused linear cross entropy (Liger kernel, 2410.10989; Wijmans et al., "Cut
// Your Losses", 2411.09009): the last linear layer and the loss in one, over
// chunks of rows, so that the logits of all rows are never there at once.

#ifndef TANDEM_MODELS_FUNCTIONS_CROSS_ENTROPY_LINEAR_CROSS_ENTROPY_FUNCTION_H_
#define TANDEM_MODELS_FUNCTIONS_CROSS_ENTROPY_LINEAR_CROSS_ENTROPY_FUNCTION_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "models/functions/cross_entropy/cross_entropy_function.h"

namespace tandem {

// CrossEntropyFunction(x weight^T, targets, ignored), within rounding: x [n,
// width], weight [classes, width], int64 targets [n]. Products are of x's
// dtype. Logits are computed for `chunk` rows at a time, 1 or more, and again
// in backward, which costs one product more; forward keeps x, the weight and a
// number a row. Needs memory for the logits of two chunks, and none for those
// of n rows unless it is differentiated twice. Throws c10::Error on shapes that
// do not fit.
CrossEntropyResult LinearCrossEntropyFunction(const at::Tensor& x,
                                              const at::Tensor& weight,
                                              const at::Tensor& targets,
                                              std::optional<int64_t> ignored,
                                              int64_t chunk);

}  // namespace tandem

#endif  // TANDEM_MODELS_FUNCTIONS_CROSS_ENTROPY_LINEAR_CROSS_ENTROPY_FUNCTION_H_
