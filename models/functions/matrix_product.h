// Matrix product, by the faster of LibTorch's two libraries: MKL (at::mm) or
// oneDNN, by a rule or by timing.

#ifndef TANDEM_MODELS_FUNCTIONS_MATRIX_PRODUCT_H_
#define TANDEM_MODELS_FUNCTIONS_MATRIX_PRODUCT_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "absl/functional/function_ref.h"

namespace tandem {

// By the fixed rule oneDNN multiplies from this many multiplications on, where
// it makes up for the longer way to it.
constexpr int64_t kLeastOneDnnProduct = int64_t{1} << 21;
// It never does for fewer than this.
constexpr int64_t kLeastMeasuredProduct = int64_t{1} << 17;

// From how many multiplications on FasterIsOneDnn may say yes: by the rule, or
// where kernels are measured (core/autotune/kernel_choices.h).
int64_t LeastProductForOneDnn();

// Whether oneDNN is to multiply float32 matrices of such shapes and strides in
// the CPU's memory, and add `bias` if it is defined. The same answer for the
// same question, as long as nobody switches measuring on or off. The functions
// compute the product, each in its way.
bool FasterIsOneDnn(const at::Tensor& a, const at::Tensor& b,
                    const at::Tensor& bias, absl::FunctionRef<void()> by_mkl,
                    absl::FunctionRef<void()> by_one_dnn);

// Whether this processor is one on which MKL has a wide product: Intel's, with
// instructions for bf16. Always the same answer in one process.
bool HasWideProduct();

// Writes a [m, k] times b [k, n] to `product` [m, n], float and contiguous. a
// and b are bf16 in the host's memory, of any strides. The product is
// accumulated in float and not rounded to bf16 at the end (what gradients of
// fp32 master weights want).
void PutWideProduct(const at::Tensor& product, const at::Tensor& a,
                    const at::Tensor& b);

// a [m, k] times b [k, n], plus bias [n] to every row unless it is undefined:
// at::mm and at::addmm, whose errors it has.
//
// They call MKL, which on processors that are not Intel's does without AVX-512.
// Large float32 products on the CPU therefore go to oneDNN, which asks the
// processor alone what it can, or to whichever of the two is faster
// (FasterIsOneDnn), and those of bf16 to oneDNN always; but a processor without
// instructions for bf16 or fp16 multiplies these as floats, and rounds the
// product. Results differ by rounding. Any strides are taken as they are.
// Differentiable (when gradients are recorded, as at::mm alone is).
at::Tensor MatrixProduct(const at::Tensor& a, const at::Tensor& b,
                         const at::Tensor& bias = {});

// The same in `dtype`: a's, or float where a is bf16 or fp16. It is not rounded
// in between where PutWideProduct or the product of floats makes it, elsewhere
// it is MatrixProduct(a, b) made wider. Differentiable.
at::Tensor MatrixProductIn(at::ScalarType dtype, const at::Tensor& a,
                           const at::Tensor& b);

// Writes MatrixProductIn(product.scalar_type(), a, b), bit for bit, to
// `product` [m, n]. Not differentiable.
void PutMatrixProduct(const at::Tensor& product, const at::Tensor& a,
                      const at::Tensor& b);

// Whether all elements of a [m, k] times b [k, n] are sure to be finite, and
// far from infinite: k times the greatest magnitudes of a and b is. False, at
// once, where these are not much smaller than the product, or not in the host's
// memory.
bool HasFiniteProduct(const at::Tensor& a, const at::Tensor& b);

}  // namespace tandem

#endif  // TANDEM_MODELS_FUNCTIONS_MATRIX_PRODUCT_H_
