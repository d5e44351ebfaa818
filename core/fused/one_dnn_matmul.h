// oneDNN's matrix product, as LibTorch has it: for which dtypes this processor
// has instructions.

#ifndef TANDEM_CORE_FUSED_ONE_DNN_MATMUL_H_
#define TANDEM_CORE_FUSED_ONE_DNN_MATMUL_H_

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

namespace tandem {

// Whether LibTorch multiplies matrices of `dtype`, float, bf16 or fp16, by
// oneDNN's matmul on this processor; false for others. Without instructions for
// bf16 or fp16 it multiplies these by plain loops, which take ten times as long
// as the product of floats; and without those for bf16 it refuses floats here,
// too. Always the same answer in one process. Thread-safe.
bool HasOneDnnMatmul(c10::ScalarType dtype);

// Writes a [m, k] times b [k, n] to `product` [m, n]: on the CPU, of one dtype
// that HasOneDnnMatmul, with any strides. Throws what LibTorch throws.
void OneDnnMatmul(const at::Tensor& product, const at::Tensor& a,
                  const at::Tensor& b);

}  // namespace tandem

#endif  // TANDEM_CORE_FUSED_ONE_DNN_MATMUL_H_
