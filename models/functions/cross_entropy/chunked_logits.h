// Chunked logits: those of a linear layer for some rows at a time, in forward
// and again in backward, so that the logits of all rows are never there at
// once.

#ifndef TANDEM_MODELS_FUNCTIONS_CROSS_ENTROPY_CHUNKED_LOGITS_H_
#define TANDEM_MODELS_FUNCTIONS_CROSS_ENTROPY_CHUNKED_LOGITS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "absl/functional/function_ref.h"

namespace tandem {

// Rows [first, first + rows) of all.
struct RowChunk {
  int64_t first = 0;
  int64_t rows = 0;

  at::Tensor Of(const at::Tensor& all) const {
    return all.narrow(0, first, rows);
  }
};

// Calls `visit` with the logits x weight^T of `chunk` rows after the other, 1
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
LinearGradients GradientsOfLogits(
    const at::Tensor& x, const at::Tensor& weight, int64_t chunk, bool wants_x,
    bool wants_weight,
    absl::FunctionRef<at::Tensor(const RowChunk& chunk,
                                 const at::Tensor& logits)>
        gradient);

}  // namespace tandem

#endif  // TANDEM_MODELS_FUNCTIONS_CROSS_ENTROPY_CHUNKED_LOGITS_H_
