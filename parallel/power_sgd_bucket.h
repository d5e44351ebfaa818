// One bucket of gradients, laid out for PowerSGD. For power_sgd.cc.

#ifndef TANDEM_PARALLEL_POWER_SGD_BUCKET_H_
#define TANDEM_PARALLEL_POWER_SGD_BUCKET_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/communicator.h"
#include "parallel/communication_hook.h"
#include "parallel/power_sgd.h"

namespace tandem {

// A gradient that is compressed.
struct LowRankGradient {
  std::string name;
  at::Tensor gradient;  // [rows, columns], in the bucket's buffer
  at::Tensor p;         // [rows, rank], in PowerSgdBucket::ps
  at::Tensor q;         // [columns, rank], in PowerSgdBucket::qs
  // What compression lost in the last step, plus, during a step, the gradient:
  // [rows, columns] and the same as the parameter has it. Undefined without
  // error feedback.
  at::Tensor error;
  at::Tensor error_view;

  // What is compressed.
  const at::Tensor& matrix() const {
    return error.defined() ? error : gradient;
  }
};

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

#endif  // TANDEM_PARALLEL_POWER_SGD_BUCKET_H_
