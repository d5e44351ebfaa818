// PowerSGD bucket: one bucket of gradients, laid out for PowerSGD, and the
// method's arithmetic on one gradient.

#ifndef TANDEM_PARALLEL_COMM_HOOKS_POWER_SGD_BUCKET_H_
#define TANDEM_PARALLEL_COMM_HOOKS_POWER_SGD_BUCKET_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/comm/communicator.h"
#include "parallel/comm_hooks/communication_hook.h"
#include "parallel/comm_hooks/power_sgd.h"

namespace tandem {

// In place: the columns of `matrix` ([n, k] with k <= n, floating point) become
// an orthonormal basis of what they span, by Gram-Schmidt, each column
// projected twice ("twice is enough": Giraud, Langou, Rozloznik, 2005), in
// double. A column that depends on those before it becomes zero. A column with
// a NaN makes itself and those after it NaN.
//
// With `epsilon` > 0 a column becomes shorter than one: it is what was left of
// it, divided by the norm of that plus epsilon, so that what is small against
// epsilon stays small. (orthogonalization_epsilon of PyTorch's PowerSGD. There
// the shorter columns are projected with, which leaves them a little short of
// orthogonal; here only the result is shortened.)
//
// Returns for each column whether it became zero: [k], bool, where the matrix
// is. The result depends on the values alone: on one kind of device ranks with
// the same matrix get the same bits. The host waits for no device.
at::Tensor Orthogonalize(const at::Tensor& matrix, double epsilon);

// A gradient that is compressed. All tensors have its dtype and device.
struct LowRankGradient {
  std::string name;
  at::Tensor gradient;  // [rows, columns], in the bucket's buffer
  at::Tensor p;         // [rows, rank], in PowerSgdBucket::ps
  at::Tensor q;         // [columns, rank], in PowerSgdBucket::qs
  // What compression lost in the last step; from ComputeP to Decompress, with
  // the gradient added. [rows, columns], and the same as the parameter has it.
  // Undefined without error feedback.
  at::Tensor error;
  at::Tensor error_view;

  // M, what is compressed.
  const at::Tensor& matrix() const {
    return error.defined() ? error : gradient;
  }
};

// Makes Q random: the same numbers on every rank, others for each parameter and
// iteration, so that what one projection misses another sees.
void RandomizeQ(const LowRankGradient& each, const PowerSgdOptions& options,
                int64_t iter);

// P = MQ, with Q made orthonormal (and random before that, without warm start).
void ComputeP(const LowRankGradient& each, const PowerSgdOptions& options,
              int64_t iter);

// Q = M'P. Requires P summed over the ranks; makes it orthonormal.
void ComputeQ(const LowRankGradient& each, const PowerSgdOptions& options);

// The gradient becomes PQ', what that lacks of M the error. Requires Q averaged
// over the ranks. If Q is not finite, on all ranks then, the gradient is NaN,
// and Q and the error start afresh.
void Decompress(const LowRankGradient& each, const PowerSgdOptions& options,
                int64_t iter);

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
