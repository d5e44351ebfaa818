// Bucket reduction: the mean of one bucket of gradients over the ranks, on its
// way.

#ifndef TANDEM_PARALLEL_DDP_BUCKET_REDUCTION_H_
#define TANDEM_PARALLEL_DDP_BUCKET_REDUCTION_H_

#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/comm/communicator.h"
#include "core/comm/pending_collective.h"
#include "parallel/comm_hooks/communication_hook.h"
#include "parallel/ddp/reducer_buckets.h"
#include "parallel/ddp/reducer_moments.h"

namespace tandem {

// The mean of a bucket over the ranks, by all-reduce (divide by `divisor`, then
// sum: so two ranks give PyTorch's bits), by reduce-scatter or by a hook.
// Movable; not thread-safe.
class BucketReduction {
 public:
  // "bucket 1 (fc.weight) of step 4": what an error is about. Only asked for
  // when there is something to say.
  using Purpose = CollectivePurpose;

  // Starts it. A null `hook` means the all-reduce. `group` and what `purpose`
  // refers to must outlive this.
  static absl::StatusOr<BucketReduction> Start(GradBucket bucket,
                                               const CommunicationHook& hook,
                                               Communicator& group, int divisor,
                                               Purpose purpose);
  // Starts a reduce-scatter: each rank gets what lies in its optimizer share of
  // the flat buffer, with the bits of the all-reduce where ranks share memory;
  // elsewhere gradients mean nothing then.
  static absl::StatusOr<BucketReduction> StartScatter(const Bucket& bucket,
                                                      Communicator& group,
                                                      int divisor,
                                                      Purpose purpose);

  // Waits; bucket.buffer, or what is this rank's of it, then holds the mean.
  absl::Status Finish();

  // After Finish.
  const ReducerMoments::Bucket& moments() const { return moments_; }

 private:
  c10::Device device_ = c10::kCPU;
  GradBucket bucket_;
  Purpose purpose_;
  FinishReduction finish_;                                // of a hook
  std::shared_ptr<std::vector<PendingCollective>> sums_;  // null: a hook's
  ReducerMoments::Bucket moments_;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_DDP_BUCKET_REDUCTION_H_
