// Matrix product by oneDNN, as LibTorch has it.

#ifndef TANDEM_MODELS_FUNCTIONS_ONEDNN_PRODUCT_H_
#define TANDEM_MODELS_FUNCTIONS_ONEDNN_PRODUCT_H_

#include <ATen/core/Tensor.h>

namespace tandem {

// Whether it multiplies matrices of this dtype, float or bf16, here: the
// processor has what it needs.
bool HasOneDnnProduct(at::ScalarType dtype);

// a [m, k] times b [k, n], plus bias [n] unless it is undefined: all of one
// dtype that it has, on a device that runs the CPU's kernels, with any strides.
at::Tensor OneDnnProduct(const at::Tensor& a, const at::Tensor& b,
                         const at::Tensor& bias);

// Writes it to `product` [m, n], of their dtype.
void PutOneDnnProduct(const at::Tensor& product, const at::Tensor& a,
                      const at::Tensor& b);

}  // namespace tandem

#endif  // TANDEM_MODELS_FUNCTIONS_ONEDNN_PRODUCT_H_
