// Channel: takes messages, one for each microbatch, from a sender to a
// receiver. Neighbouring stages are joined by two, activations go one way and
// gradients the other; copy_channel.h and remote_channel.h make them.

#ifndef TANDEM_PARALLEL_CHANNEL_CHANNEL_H_
#define TANDEM_PARALLEL_CHANNEL_CHANNEL_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem {

// What crosses a cut: what the layer before it gives, then the skip connections
// on their way, by name; those that take a gradient require one, as leaves. Or
// their gradients, undefined where there is none.
using StageMessage = std::vector<at::Tensor>;

// The microbatches of a step, as both ends of a channel know them.
struct ChannelStep {
  std::vector<int64_t> rows;  // by microbatch
  uint64_t identity = 0;      // of the whole batch (core/model/batch.h)
  std::vector<int> order;     // in which the receiver takes them
  std::vector<int> sent;      // in which the sender sends them
  // Microbatches whose messages of the other direction the sender of this one
  // has taken when it sends that of a microbatch, and had not when it sent the
  // one before.
  std::map<int, std::vector<int>> taken;
};

// What one rank sent to others.
struct ChannelTraffic {
  int64_t messages = 0;
  int64_t bytes = 0;

  ChannelTraffic& operator+=(const ChannelTraffic& other) {
    messages += other.messages;
    bytes += other.bytes;
    return *this;
  }
};

// One end of a channel; it does not know where the other is. One thread at a
// time uses an end, but for Close.
class ChannelEnd {
 public:
  virtual ~ChannelEnd() = default;

  // A step begins; no thread is inside.
  virtual void Begin(const ChannelStep& step) { static_cast<void>(step); }

  // Ends every wait, now and until the next Begin, with this reason (not OK).
  // What is on its way is dropped.
  virtual void Close(const absl::Status& reason) = 0;
};

class ChannelSender : public virtual ChannelEnd {
 public:
  // Hands the message over, while it is still being computed where there are
  // streams. Waits while the channel is full, for its timeout at most:
  // DeadlineExceeded. After Close: its reason.
  virtual absl::Status Send(int microbatch, const StageMessage& message) = 0;

  // All that was sent needs nothing from this side any more.
  virtual absl::Status Flush() { return absl::OkStatus(); }

  // To other ranks, so far.
  virtual ChannelTraffic sent() const { return {}; }
};

class ChannelReceiver : public virtual ChannelEnd {
 public:
  // The message of that microbatch, on the receiver's device; waits for it, for
  // the channel's timeout at most.
  virtual absl::StatusOr<StageMessage> Receive(int microbatch) = 0;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_CHANNEL_CHANNEL_H_
