// Low-precision matrix products: whether this processor multiplies bf16 and
// fp16 faster than float.

#ifndef TANDEM_CORE_FUSED_LOW_PRECISION_PRODUCTS_H_
#define TANDEM_CORE_FUSED_LOW_PRECISION_PRODUCTS_H_

#include <c10/core/ScalarType.h>

namespace tandem {

// Whether LibTorch multiplies matrices of `dtype`, bf16 or fp16, by oneDNN on
// this processor, which has instructions for them. Else it does by plain loops,
// which take ten times as long as the product of floats. Always the same answer
// in one process. Thread-safe.
bool HasLowPrecisionProducts(c10::ScalarType dtype);

}  // namespace tandem

#endif  // TANDEM_CORE_FUSED_LOW_PRECISION_PRODUCTS_H_
