// What joins two neighbouring stages: activations go one way, gradients the
// other, a message for each microbatch.

#ifndef TANDEM_PARALLEL_STAGE_LINK_H_
#define TANDEM_PARALLEL_STAGE_LINK_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <chrono>
#include <map>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "parallel/copy_channel.h"

namespace tandem {

// One direction of a link. The sender's thread and the receiver's may differ;
// neither knows where the other is.
class StageLane {
 public:
  virtual ~StageLane() = default;

  // Hands the tensor over, while it is still being computed where there are
  // streams. Waits while the lane is full, for the timeout at most:
  // DeadlineExceeded. After Close: its reason.
  virtual absl::Status Send(int microbatch, const at::Tensor& tensor) = 0;

  // The tensor of that microbatch, on the receiver's device; waits for it, for
  // the timeout at most.
  virtual absl::StatusOr<at::Tensor> Receive(int microbatch) = 0;

  // Ends every wait, now and from now on, with this reason (not OK). What is
  // on its way is dropped.
  virtual void Close(const absl::Status& reason) = 0;

  // Forgets messages and the reason; when no thread is inside.
  virtual void Reopen() = 0;
};

// Between two devices of one process: messages are copies by `copies`, of which
// at most `capacity` (1 or more) wait to be taken.
class LocalStageLane : public StageLane {
 public:
  LocalStageLane(CopyLane copies, int capacity,
                 std::chrono::milliseconds timeout);

  absl::Status Send(int microbatch, const at::Tensor& tensor) override;
  absl::StatusOr<at::Tensor> Receive(int microbatch) override;
  void Close(const absl::Status& reason) override;
  void Reopen() override;

 private:
  const CopyLane copies_;
  const size_t capacity_;
  const absl::Duration timeout_;
  absl::Mutex mutex_;
  std::map<int, PendingCopy> waiting_ ABSL_GUARDED_BY(mutex_);
  absl::Status closed_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_STAGE_LINK_H_
