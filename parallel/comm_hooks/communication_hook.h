// Communication hook: what replaces the all-reduce of a bucket of gradients.
//
// All-reduced mean over all ranks, as PyTorch's communication hooks form it.

#ifndef TANDEM_PARALLEL_COMM_HOOKS_COMMUNICATION_HOOK_H_
#define TANDEM_PARALLEL_COMM_HOOKS_COMMUNICATION_HOOK_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem {

class Communicator;
class PendingCollective;

// Starts an all-reduce that makes `tensor` (floating point, contiguous) the
// mean over the ranks of `group`: every element is divided by the number of
// ranks, in the tensor's own dtype, and then summed. Errors of
// Communicator::StartAllReduceSum.
//
// A factor 1/n rounds differently from a division unless n is a power of two;
// then the factor is used, which needs no pass of its own.
absl::StatusOr<PendingCollective> StartAllReduceMean(at::Tensor tensor,
                                                     Communicator& group);

// One bucket, as a hook sees it (torch.distributed.GradBucket). The vectors go
// along with each other.
struct GradBucket {
  int64_t index = 0;
  bool is_last = false;  // no further bucket comes in this backward
  // [n], contiguous: this rank's gradients, not divided by anything. Between
  // parameters there may be padding, zeros on every rank.
  at::Tensor buffer;
  std::vector<at::Tensor> gradients;  // views of `buffer`, parameters' shapes
  std::vector<at::Tensor> parameters;
  std::vector<std::string> names;
};

// Waits for what the hook started, and leaves the mean over all ranks in
// `bucket.buffer`, the same bits on each.
using FinishReduction = std::function<absl::Status()>;

// torch's register_comm_hook: called when the bucket's last gradient is ready,
// on a thread of backward, while the rest of backward goes on. It starts its
// collectives and returns. What it returns is called at the end of backward,
// for all buckets in index order, and may issue further collectives: on every
// rank the calls come in the same order, so a hook needs no order of its own.
// The bucket may be kept until then. A hook never runs on two threads at once.
//
// It outlives one backward: state (PowerSGD's) lives in what it captures. Key
// it by name, not by index: buckets are rebuilt once, after the first backward.
using CommunicationHook = std::function<absl::StatusOr<FinishReduction>(
    const GradBucket& bucket, Communicator& group)>;

}  // namespace tandem

#endif  // TANDEM_PARALLEL_COMM_HOOKS_COMMUNICATION_HOOK_H_
