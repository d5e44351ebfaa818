#include "parallel/channel/remote_channel_end.h"

#include <glog/logging.h>

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace tandem {

absl::Status InFlightMessage::Wait() {
  for (PendingCollective& each : pending) {
    TANDEM_RETURN_IF_ERROR(each.Wait());
  }
  return absl::OkStatus();
}

const MessageLayout* RemoteChannelSide::FindLayout(int64_t rows) const {
  const auto found = layouts_.find(rows);
  return found == layouts_.end() ? nullptr : &found->second;
}

void RemoteChannelSide::SetLayout(int64_t rows, MessageLayout layout) {
  layouts_[rows] = std::move(layout);
  if (on_layout_) on_layout_();
}

void RemoteChannelSide::Keep(int microbatch, InFlightMessage message) {
  sent_.emplace_back(microbatch, std::move(message));
}

absl::Status RemoteChannelSide::Drop(int microbatch) {
  const auto found = absl::c_find_if(sent_, [microbatch](const auto& each) {
    return each.first == microbatch;
  });
  if (found == sent_.end()) return absl::OkStatus();
  const absl::Status gone = found->second.Wait();
  if (gone.ok()) sent_.erase(found);
  return gone;
}

absl::Status RemoteChannelSide::DropTo(size_t left) {
  while (sent_.size() > left) {
    TANDEM_RETURN_IF_ERROR(sent_.front().second.Wait());
    sent_.pop_front();
  }
  return absl::OkStatus();
}

RemoteChannelEnd::RemoteChannelEnd(const RemoteChannelOptions& options,
                                   std::shared_ptr<RemoteChannelSide> side,
                                   ChannelDirection direction)
    : options_(options), side_(std::move(side)), direction_(direction) {}

void RemoteChannelEnd::Begin(const ChannelStep& step) {
  step_ = step;
  if (carries_activations()) side_->ForgetLayouts();
}

void RemoteChannelEnd::Close(const absl::Status& reason) {
  options_.group->Abort(reason);
  if (has_lane()) lane()->Abort(reason);
}

Communicator& RemoteChannelEnd::SlotCommunicator(size_t slot) const {
  return has_lane() && slot > 0 ? *lane() : *options_.group;
}

RankMessage RemoteChannelEnd::Message(bool sends, const at::Tensor& tensor,
                                      int microbatch, size_t slot) const {
  const bool on_lane = has_lane() && slot > 0;
  return {sends, FlatView(tensor), on_lane ? 1 - lane()->rank() : options_.peer,
          Tag(microbatch, slot)};
}

absl::StatusOr<PendingCollective> RemoteChannelEnd::Send(
    const at::Tensor& tensor, int microbatch, size_t slot) {
  sent_.messages += 1;
  sent_.bytes += static_cast<int64_t>(tensor.nbytes());
  const RankMessage message = Message(true, tensor, microbatch, slot);
  const FlightPurposeScope flight(MessagePurpose(microbatch));
  return SlotCommunicator(slot).StartMessages({&message, 1},
                                              Purpose(microbatch));
}

absl::StatusOr<PendingCollective> RemoteChannelEnd::Receive(
    const at::Tensor& tensor, int microbatch, size_t slot) const {
  const RankMessage message = Message(false, tensor, microbatch, slot);
  const FlightPurposeScope flight(MessagePurpose(microbatch));
  return SlotCommunicator(slot).StartMessages({&message, 1},
                                              Purpose(microbatch));
}

absl::Status RemoteChannelEnd::DropTaken(int microbatch) const {
  const auto taken = step_.taken.find(microbatch);
  if (taken == step_.taken.end()) return absl::OkStatus();
  for (int each : taken->second) TANDEM_RETURN_IF_ERROR(side_->Drop(each));
  return absl::OkStatus();
}

int RemoteChannelEnd::FirstWithRows(int64_t rows) const {
  const auto first = absl::c_find_if(step_.sent, [&](int microbatch) {
    return this->rows(microbatch) == rows;
  });
  CHECK(first != step_.sent.end()) << "no microbatch has " << rows << " rows";
  return *first;
}

int RemoteChannelEnd::Tag(int microbatch, size_t slot) const {
  const int channel = 2 * options_.stage + (carries_activations() ? 0 : 1);
  return (channel * options_.microbatches + microbatch) *
             static_cast<int>(kMostTensors + 1) +
         static_cast<int>(slot);
}

FlightPurpose RemoteChannelEnd::MessagePurpose(int microbatch) const {
  FlightPurpose purpose;
  purpose.what = carries_activations() ? "activations" : "gradients";
  purpose.stage = options_.stage;
  purpose.microbatch = microbatch;
  return purpose;
}

// By values: what was started may outlive this end.
CollectivePurpose RemoteChannelEnd::Purpose(int microbatch) const {
  return [activations = carries_activations(), stage = options_.stage,
          microbatch] {
    return activations ? absl::StrCat("activations of microbatch ", microbatch,
                                      " from stage ", stage)
                       : absl::StrCat("gradients of microbatch ", microbatch,
                                      " for stage ", stage);
  };
}

}  // namespace tandem
