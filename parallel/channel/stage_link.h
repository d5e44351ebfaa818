// What joins two neighbouring stages: activations go one way, gradients the
// other, a message for each microbatch.

#ifndef TANDEM_PARALLEL_CHANNEL_STAGE_LINK_H_
#define TANDEM_PARALLEL_CHANNEL_STAGE_LINK_H_

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "parallel/channel/copy_channel.h"

namespace tandem {

// What crosses a cut: what the layer before it gives, then the skip connections
// on their way, by name; those that take a gradient require one, as leaves. Or
// their gradients, undefined where there is none.
using StageMessage = std::vector<at::Tensor>;

// The microbatches of a step, as both ends of a link know them.
struct LinkStep {
  std::vector<int64_t> rows;  // by microbatch
  std::vector<int> order;     // in which the receiver takes them
  // Microbatches whose messages of the other direction the sender of this one
  // has taken when it sends that of a microbatch, and had not when it sent the
  // one before.
  std::map<int, std::vector<int>> taken;
};

// What one rank sent to others.
struct LinkTraffic {
  int64_t messages = 0;
  int64_t bytes = 0;

  LinkTraffic& operator+=(const LinkTraffic& other) {
    messages += other.messages;
    bytes += other.bytes;
    return *this;
  }
};

// One end of one direction of a link; it does not know where the other end is.
// One thread at a time uses an end, but for Close.
class StageLinkEnd {
 public:
  virtual ~StageLinkEnd() = default;

  // A step begins; no thread is inside.
  virtual void Begin(const LinkStep& step) { static_cast<void>(step); }

  // Ends every wait, now and until the next Begin, with this reason (not OK).
  // What is on its way is dropped.
  virtual void Close(const absl::Status& reason) = 0;
};

class StageSender : public virtual StageLinkEnd {
 public:
  // Hands the message over, while it is still being computed where there are
  // streams. Waits while the link is full, for its timeout at most:
  // DeadlineExceeded. After Close: its reason.
  virtual absl::Status Send(int microbatch, const StageMessage& message) = 0;

  // All that was sent needs nothing from this side any more.
  virtual absl::Status Flush() { return absl::OkStatus(); }

  // To other ranks, so far.
  virtual LinkTraffic sent() const { return {}; }
};

class StageReceiver : public virtual StageLinkEnd {
 public:
  // The message of that microbatch, on the receiver's device; waits for it, for
  // the link's timeout at most.
  virtual absl::StatusOr<StageMessage> Receive(int microbatch) = 0;
};

// Between two devices of one process: messages are copies by `copies`, of which
// at most `capacity` (1 or more) wait to be taken. Both ends in one. Errors
// call a message "activations of microbatch 3 from stage 1", of which `whose`
// are the first and the last part.
class LocalStageLane : public StageSender, public StageReceiver {
 public:
  struct Whose {
    std::string what;   // "activations"
    std::string stage;  // "from stage 1"
  };

  LocalStageLane(CopyLane copies, int capacity,
                 std::chrono::milliseconds timeout, Whose whose);

  void Begin(const LinkStep& step) override;
  absl::Status Send(int microbatch, const StageMessage& message) override;
  absl::StatusOr<StageMessage> Receive(int microbatch) override;
  void Close(const absl::Status& reason) override;

 private:
  struct Waiting {
    PendingCopy copies;
    std::vector<bool> takes_gradient;
  };

  std::string Describe(int microbatch) const;

  const CopyLane copies_;
  const size_t capacity_;
  const absl::Duration timeout_;
  const Whose whose_;
  absl::Mutex mutex_;
  std::map<int, Waiting> waiting_ ABSL_GUARDED_BY(mutex_);
  absl::Status closed_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_CHANNEL_STAGE_LINK_H_
