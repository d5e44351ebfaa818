// Matrix product of bf16 matrices in float: accumulated in float, and not
// rounded to bf16 at the end (what gradients of fp32 master weights want).

#ifndef TANDEM_MODELS_FUNCTIONS_WIDE_PRODUCT_H_
#define TANDEM_MODELS_FUNCTIONS_WIDE_PRODUCT_H_

#include <ATen/core/Tensor.h>

namespace tandem {

// Whether this processor is one on which MKL has it: Intel's, with instructions
// for bf16. Always the same answer in one process.
bool HasWideProduct();

// Writes a [m, k] times b [k, n] to `product` [m, n], float and contiguous. a
// and b are bf16 in the host's memory, of any strides.
void PutWideProduct(const at::Tensor& product, const at::Tensor& a,
                    const at::Tensor& b);

}  // namespace tandem

#endif  // TANDEM_MODELS_FUNCTIONS_WIDE_PRODUCT_H_
