// Gradient reducer: averages gradients over replicas while backward still runs.

#ifndef TANDEM_PARALLEL_DDP_REDUCER_H_
#define TANDEM_PARALLEL_DDP_REDUCER_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "core/comm/communicator.h"
#include "parallel/comm_hooks/communication_hook.h"
#include "parallel/ddp/bucket_reduction.h"
#include "parallel/ddp/ready_marks.h"
#include "parallel/ddp/reducer_buckets.h"
#include "parallel/ddp/reducer_moments.h"
#include "parallel/optim/flat_buffer.h"

namespace tandem {

// The Reducer of PyTorch's DistributedDataParallel (Li et al.,
// arXiv:2006.15704) over flat buffers: a bucket is a slice, nothing is copied.
//
// A parameter is marked ready when its gradient is complete, by an autograd
// hook or by whoever computes it otherwise. A bucket starts when its last
// gradient is ready and all buckets before it have started, so that all ranks
// start them in the same order. Finish(), after backward, waits for all.
// Buckets are first made in the order of the buffers (parameters reversed) and
// rebuilt once, after the first backward, in the order in which gradients
// became ready on rank 0; values, gradients and optimizer state move along (but
// see FlatBuffer::keeps_order).
// An error leaves the group aborted, so that other ranks fail at once; every
// later Finish returns it too. MarkReady may be called from any thread; the
// rest from one at a time.
class Reducer {
 public:
  // `buffers` and `group` must outlive the reducer.
  Reducer(std::vector<FlatBuffer*> buffers, Communicator& group,
          ReducerOptions options);
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  // Replaces the all-reduce. FailedPrecondition if it was replaced before.
  absl::Status SetHook(CommunicationHook hook);

  // Rebuilds the buckets if that is due. Collective; between two steps.
  // FailedPrecondition for a parameter that its module has replaced.
  absl::Status PrepareForForward();

  // Whether backwards from now on are averaged; else gradients only gather.
  void set_synchronise(bool on) { synchronise_ = on; }
  bool synchronise() const { return synchronise_; }
  // What sums are divided by from the next backward on, at first the group's
  // size; a hook divides for itself. The same on every rank.
  void set_divisor(int divisor) { divisor_ = divisor; }
  bool has_hook() const { return static_cast<bool>(hook_); }
  // Whether each rank gets its own share of each buffer alone from then on
  // (OptimizerShare): no hook, one backward between two ZeroGrad.
  void set_scatters(bool on) { scatters_ = on; }
  // A backward with nothing of this rank's own, whatever set_synchronise says:
  // gradients are the mean of the others' and zeros, and what none of them uses
  // has none. Between two steps, after PrepareForForward.
  absl::Status AddNothing();
  // A backward begins, unless one is under way.
  void Begin();
  bool is_in_backward();
  // The gradient of the parameter at `position` (FlatSlot's) is complete.
  // Begins a backward where none is under way.
  void MarkReady(int64_t position);
  // The same for every parameter with a gradient that was not marked in this
  // backward: what earlier ones have gathered is all that it gets.
  void MarkGathered();
  // The end of backward: starts what was not, waits for all, and settles which
  // parameters have a gradient: those used on any rank. Nothing to do when no
  // backward is under way.
  // InvalidArgument names parameters: without gradient (and neither option
  // find_unused_parameters nor static_graph), marked twice, of a graph that
  // changed. Else errors of Communicator and the hook, with bucket and step.
  absl::Status Finish();
  // Backward has failed, before its end: tells the other ranks why. Returns
  // what Finish will: the first failure.
  absl::Status Fail(const absl::Status& reason);

  const ReducerBuckets& buckets() const { return buckets_; }
  int64_t steps() const { return steps_; }  // averaged backwards so far
  const ReducerMoments& moments() const { return moments_; }  // the last's

 private:
  bool learns_use() const;

  void BeginBackward() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void BeginAveraging() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Mark(int64_t position) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void StartBuckets(bool all) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Average() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status SettleUse() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  ReducerBuckets buckets_;
  Communicator& group_;
  const ReducerOptions options_;
  CommunicationHook hook_;
  bool synchronise_ = true, is_shadow_ = false;
  bool scatters_ = false;
  int divisor_;
  int64_t steps_ = 0;
  ReducerMoments moments_;

  absl::Mutex mutex_;
  bool active_ ABSL_GUARDED_BY(mutex_) = false;
  bool averaging_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  ReadyMarks marks_ ABSL_GUARDED_BY(mutex_);
  std::vector<int64_t> missing_ ABSL_GUARDED_BY(mutex_);  // by bucket
  std::vector<BucketReduction> running_ ABSL_GUARDED_BY(mutex_);
  at::Tensor use_ ABSL_GUARDED_BY(mutex_);  // int32, by position
  PendingCollective use_exchange_ ABSL_GUARDED_BY(mutex_);
};

// An error of the backward whose gradients are to be averaged after those of
// `backwards` others, with the numbers and what to do, if it is that another
// rank has left: nothing failed there, its batches have come to an end. A step
// may have several such backwards, and a batch none (no_sync).
absl::Status ExplainEarlyEnd(const absl::Status& status, int64_t backwards);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_DDP_REDUCER_H_
