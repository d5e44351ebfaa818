// What a norm is made of.

#ifndef TANDEM_PARALLEL_POWER_SUM_H_
#define TANDEM_PARALLEL_POWER_SUM_H_

#include <ATen/core/Tensor.h>

#include <vector>

namespace tandem {

// For each of `tensors` (floating point, contiguous, any shape, one device):
// the sum of |x|^p over its elements, or their greatest |x| when p is infinite.
// Requires p > 0. NaNs stay.
//
// On CPU float and double are summed in double and in a fixed order: the result
// has the same bits on every x86-64 machine and for any number of threads.
// Others go through LibTorch.
std::vector<double> PowerSums(const std::vector<at::Tensor>& tensors, double p);

// The p-norm whose power sum over all elements is `sum`.
double NormOfPowerSum(double sum, double p);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_POWER_SUM_H_
