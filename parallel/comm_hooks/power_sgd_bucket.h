// PowerSGD bucket: one bucket of gradients, laid out for PowerSGD.

#ifndef TANDEM_PARALLEL_COMM_HOOKS_POWER_SGD_BUCKET_H_
#define TANDEM_PARALLEL_COMM_HOOKS_POWER_SGD_BUCKET_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/comm/communicator.h"
#include "parallel/comm_hooks/communication_hook.h"
#include "parallel/comm_hooks/low_rank_gradient.h"
#include "parallel/comm_hooks/power_sgd.h"

namespace tandem {

struct PowerSgdBucket {
  std::vector<LowRankGradient> low_rank;
  at::Tensor ps, qs;  // each matrix on a 64-byte boundary; between them zeros
  // The gradients that are averaged as they are, flat, and where they are put
  // side by side. The whole bucket in its place when nothing is compressed.
  std::vector<at::Tensor> uncompressed;
  at::Tensor uncompressed_memory;
  int64_t numel_before = 0;
  int64_t numel_after = 0;
};

// Decides what of `bucket` is compressed and makes memory for it: ps and qs
// zero, errors zero.
absl::StatusOr<PowerSgdBucket> LayOutPowerSgdBucket(
    const GradBucket& bucket, const PowerSgdOptions& options,
    Communicator& group);

// Copies the gradients that are averaged as they are to the memory where they
// lie side by side, and back.
void GatherUncompressed(const PowerSgdBucket& bucket);
void ScatterUncompressed(const PowerSgdBucket& bucket);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_COMM_HOOKS_POWER_SGD_BUCKET_H_
