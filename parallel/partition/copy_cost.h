// Copy cost: what it takes to bring a tensor from one device to another,
// measured.

#ifndef TANDEM_PARALLEL_PARTITION_COPY_COST_H_
#define TANDEM_PARALLEL_PARTITION_COPY_COST_H_

#include <c10/core/Device.h>

#include "absl/status/statusor.h"
#include "parallel/partition/partition.h"

namespace tandem {

// Times copies of two sizes, 4 KiB and 4 MiB. Between a device and itself (the
// CPU of two ranks) that of a copy in its memory. LibTorch's errors.
absl::StatusOr<SendingCost> MeasureCopy(c10::Device from, c10::Device to);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_PARTITION_COPY_COST_H_
