// Fused linear cross entropy (Liger kernel, 2410.10989; Wijmans et al., "Cut
// Your Losses", 2411.09009): the last linear layer and the loss in one, over
// chunks of rows, so that the logits of all rows are never there at once.

#ifndef TANDEM_MODELS_FUNCTIONS_CROSS_ENTROPY_LINEAR_CROSS_ENTROPY_FUNCTION_H_
#define TANDEM_MODELS_FUNCTIONS_CROSS_ENTROPY_LINEAR_CROSS_ENTROPY_FUNCTION_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "absl/functional/function_ref.h"
#include "models/functions/cross_entropy/cross_entropy_function.h"

namespace tandem {

// Some rows of all, [first, first + rows).
struct RowChunk {
  int64_t first = 0;
  int64_t rows = 0;

  at::Tensor Of(const at::Tensor& all) const {
    return all.narrow(0, first, rows);
  }
};

// Chunked logits, in forward and again in backward: calls `visit` with the
// logits x weight^T of `chunk` rows after the other, 1
// or more: x [n, width], weight [classes, width]. Products are of x's dtype.
// Logits are float, or as x where the fused kernels take them so, or double. No
// rows are one chunk without any. Records no gradients.
void ForEachLogits(
    const at::Tensor& x, const at::Tensor& weight, int64_t chunk,
    absl::FunctionRef<void(const RowChunk& chunk, const at::Tensor& logits)>
        visit);

struct LinearGradients {
  at::Tensor x, weight;
};

// Given the gradient of each chunk's logits, those of x and of the weight, each
// of its own dtype, as far as they are wanted; the others are undefined, and so
// is a weight's that has been put in its place (core/model/gradient_place.h).
LinearGradients LogitGradients(
    const at::Tensor& x, const at::Tensor& weight, int64_t chunk, bool wants_x,
    bool wants_weight,
    absl::FunctionRef<at::Tensor(const RowChunk& chunk,
                                 const at::Tensor& logits)>
        gradient);

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
