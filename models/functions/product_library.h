// Library of a matrix product: MKL (at::mm) or oneDNN, by a rule or by timing.

#ifndef TANDEM_MODELS_FUNCTIONS_PRODUCT_LIBRARY_H_
#define TANDEM_MODELS_FUNCTIONS_PRODUCT_LIBRARY_H_

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

}  // namespace tandem

#endif  // TANDEM_MODELS_FUNCTIONS_PRODUCT_LIBRARY_H_
