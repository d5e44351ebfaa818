// Power sums: sums of |x|^p, what norms are made of.

#ifndef TANDEM_CORE_VECTOR_POWER_SUM_H_
#define TANDEM_CORE_VECTOR_POWER_SUM_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace tandem {

struct ElementRange {
  int64_t offset;
  int64_t numel;  // > 0
};

// For each of `ranges` of `flat` ([n], floating point, contiguous): for p = 1
// and 2 the sum of |x|^p over its elements, else their p-norm, whose powers may
// be more than a double holds (the greatest |x| when p is infinite). Requires
// p > 0. NaNs stay; a norm of finite elements that is itself too large is the
// greatest double.
//
// On CPU float and double are summed in double and in a fixed order: for p = 1
// and 2 and infinity the result has the same bits on every x86-64 machine,
// whatever its vectors, and for any number of threads. Others go through
// LibTorch.
std::vector<double> PowerSums(const at::Tensor& flat,
                              const std::vector<ElementRange>& ranges,
                              double p);

// PowerSums with p = 2 as a float64 tensor [ranges.size()] where `flat` is,
// which no host waits for: on the CPU with the same bits. At least one range.
at::Tensor SquareSums(const at::Tensor& flat,
                      const std::vector<ElementRange>& ranges);

// The p-norm of all elements of which these are PowerSums. Infinite, too, where
// it is more than a double holds.
double NormOfPowerSums(const std::vector<double>& sums, double p);

// Is that norm infinite though every sum is finite?
bool NormOverflows(const std::vector<double>& sums, double p);

}  // namespace tandem

#endif  // TANDEM_CORE_VECTOR_POWER_SUM_H_
