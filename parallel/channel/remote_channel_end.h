// Ends of remote channels: how messages are addressed, and what those that were
// sent or come have in common.

#ifndef TANDEM_PARALLEL_CHANNEL_REMOTE_CHANNEL_END_H_
#define TANDEM_PARALLEL_CHANNEL_REMOTE_CHANNEL_END_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/comm/pending_collective.h"
#include "core/flight/recorder.h"
#include "parallel/channel/channel.h"
#include "parallel/channel/message_layout.h"
#include "parallel/channel/remote_channel.h"

namespace tandem {

enum class ChannelDirection { kActivations, kGradients };

// A message on its way: its tensors live until they have gone or come.
struct InFlightMessage {
  StageMessage tensors;
  std::vector<PendingCollective> pending;

  absl::Status Wait();
};

// What the two ends of one side know of each other. One thread uses both.
class RemoteChannelSide {
 public:
  // The layouts of a step's activations, by rows of a microbatch.
  void ForgetLayouts() { layouts_.clear(); }
  const MessageLayout* FindLayout(int64_t rows) const;
  void SetLayout(int64_t rows, MessageLayout layout);
  // Is called when a layout is known that was not.
  void OnLayout(std::function<void()> call) { on_layout_ = std::move(call); }

  // What this side sends lives until it was taken.
  void Keep(int microbatch, InFlightMessage message);
  // It was taken: so says a message that came from the other side.
  absl::Status Drop(int microbatch);
  // Waits until no more than so many are left.
  absl::Status DropTo(size_t left);

 private:
  std::map<int64_t, MessageLayout> layouts_;
  std::function<void()> on_layout_;
  std::deque<std::pair<int, InFlightMessage>> sent_;
};

// What the sender and the receiver of a remote channel have in common. Not
// thread-safe.
class RemoteChannelEnd {
 public:
  RemoteChannelEnd(const RemoteChannelOptions& options,
                   std::shared_ptr<RemoteChannelSide> side,
                   ChannelDirection direction);

  void Begin(const ChannelStep& step);
  void Close(const absl::Status& reason);

  const RemoteChannelOptions& options() const { return options_; }
  RemoteChannelSide& side() const { return *side_; }
  const ChannelStep& step() const { return step_; }
  int64_t rows(int microbatch) const {
    return step_.rows[static_cast<size_t>(microbatch)];
  }
  bool carries_activations() const {
    return direction_ == ChannelDirection::kActivations;
  }
  bool carries(const TensorLayout& layout) const {
    return carries_activations() || layout.takes_gradient;
  }
  const ChannelTraffic& sent() const { return sent_; }

  // Do streams carry the tensors? Then receives start as the sender sends.
  bool has_lane() const { return lane() != nullptr; }
  // The order in which receives start.
  const std::vector<int>& receives() const {
    return has_lane() ? step_.sent : step_.order;
  }

  // `slot`: which of a message's tensors, from 1; 0 is its layout, which lies
  // on the host.
  absl::StatusOr<PendingCollective> Send(const at::Tensor& tensor,
                                         int microbatch, size_t slot);
  absl::StatusOr<PendingCollective> Receive(const at::Tensor& tensor,
                                            int microbatch, size_t slot) const;
  // Drops what the other side had taken when it sent this message.
  absl::Status DropTaken(int microbatch) const;
  // The microbatch under whose tag a layout is told: the first of its size to
  // be sent, which both sides know. Of the first of all they know it even if
  // their batches differ.
  int FirstWithRows(int64_t rows) const;

 private:
  Communicator* lane() const {
    return carries_activations() ? options_.activations_lane
                                 : options_.gradients_lane;
  }
  RankMessage Message(bool sends, const at::Tensor& tensor, int microbatch,
                      size_t slot) const;
  Communicator& SlotCommunicator(size_t slot) const;
  int Tag(int microbatch, size_t slot) const;
  CollectivePurpose Purpose(int microbatch) const;
  FlightPurpose MessagePurpose(int microbatch) const;

  RemoteChannelOptions options_;
  std::shared_ptr<RemoteChannelSide> side_;
  ChannelDirection direction_;
  ChannelStep step_;
  ChannelTraffic sent_;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_CHANNEL_REMOTE_CHANNEL_END_H_
