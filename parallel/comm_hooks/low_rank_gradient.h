// PowerSGD's arithmetic on one gradient. For power_sgd_state.cc.

#ifndef TANDEM_PARALLEL_COMM_HOOKS_LOW_RANK_GRADIENT_H_
#define TANDEM_PARALLEL_COMM_HOOKS_LOW_RANK_GRADIENT_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "parallel/comm_hooks/power_sgd.h"

namespace tandem {

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

}  // namespace tandem

#endif  // TANDEM_PARALLEL_COMM_HOOKS_LOW_RANK_GRADIENT_H_
