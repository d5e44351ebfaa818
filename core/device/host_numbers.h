// Device-to-host copies of small tensors, many at once.

#ifndef TANDEM_CORE_DEVICE_HOST_NUMBERS_H_
#define TANDEM_CORE_DEVICE_HOST_NUMBERS_H_

#include <ATen/core/Tensor.h>

#include <vector>

namespace tandem {

// The elements of all tensors as doubles, one tensor after the other: one copy,
// and one wait, for each device that they lie on. Whole numbers are exact up to
// 2^53. Throws LibTorch's exceptions.
std::vector<double> ReadNumbers(const std::vector<at::Tensor>& tensors);

}  // namespace tandem

#endif  // TANDEM_CORE_DEVICE_HOST_NUMBERS_H_
