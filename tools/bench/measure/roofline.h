// Roofline: how fast this machine is at best, with which a step's time is
// compared.

#ifndef TANDEM_TOOLS_BENCH_MEASURE_ROOFLINE_H_
#define TANDEM_TOOLS_BENCH_MEASURE_ROOFLINE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "core/comm/communicator.h"

namespace tandem {

// The best rates, in 1e9 operations a second, of the float32 product of two
// 1024 x 1024 matrices, with this process's threads.
struct GemmRates {
  double mkl;      // at::mm's
  double one_dnn;  // MatrixProduct's
};
GemmRates MeasureGemm();

// Median of several all-reduces of `numel` float32 numbers, in milliseconds.
// Collective.
absl::StatusOr<double> AllReduceMs(Communicator& group, int64_t numel);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_MEASURE_ROOFLINE_H_
