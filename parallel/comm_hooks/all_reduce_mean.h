// All-reduced mean over all ranks, as PyTorch's communication hooks form it.

#ifndef TANDEM_PARALLEL_COMM_HOOKS_ALL_REDUCE_MEAN_H_
#define TANDEM_PARALLEL_COMM_HOOKS_ALL_REDUCE_MEAN_H_

#include <ATen/core/Tensor.h>

#include "absl/status/statusor.h"
#include "core/comm/communicator.h"
#include "core/comm/pending_collective.h"

namespace tandem {

// Starts an all-reduce that makes `tensor` (floating point, contiguous) the
// mean over the ranks of `group`: every element is divided by the number of
// ranks, in the tensor's own dtype, and then summed. Errors of
// Communicator::StartAllReduceSum.
//
// A factor 1/n rounds differently from a division unless n is a power of two;
// then the factor is used, which needs no pass of its own.
absl::StatusOr<PendingCollective> StartAllReduceMean(at::Tensor tensor,
                                                     Communicator& group);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_COMM_HOOKS_ALL_REDUCE_MEAN_H_
