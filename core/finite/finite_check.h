// Finite check of a tensor: whether it has infinite or NaN values, and where.

#ifndef TANDEM_CORE_FINITE_FINITE_CHECK_H_
#define TANDEM_CORE_FINITE_FINITE_CHECK_H_

#include <ATen/core/Tensor.h>

#include <string>

namespace tandem {

// Whether all values are finite: floating-point numbers on any device, which it
// waits for.
bool IsFinite(const at::Tensor& values);

// "3 NaN and 1 infinite of 4096 values, the first at [0, 17] (nan)", of one
// that is not finite.
std::string CountNonfinite(const at::Tensor& values);

// Throws std::out_of_range: from within a layer or backward, whose callers make
// a Status of it (core/base/torch_status.h).
[[noreturn]] void ThrowNonfinite(const std::string& message);

}  // namespace tandem

#endif  // TANDEM_CORE_FINITE_FINITE_CHECK_H_
