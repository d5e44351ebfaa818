// What both ends of a link between ranks have in common: how messages are
// addressed, and what form they have.

#ifndef TANDEM_PARALLEL_CHANNEL_STAGE_WIRE_H_
#define TANDEM_PARALLEL_CHANNEL_STAGE_WIRE_H_

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
#include "parallel/channel/message_form.h"
#include "parallel/channel/remote_stage_link.h"
#include "parallel/channel/stage_link.h"

namespace tandem {

enum class WireDirection { kActivations, kGradients };

// A message on its way: its tensors live until they have gone or come.
struct Parcel {
  StageMessage tensors;
  std::vector<PendingCollective> pending;

  absl::Status Wait();
};

// What the two ends of one side know of each other. One thread uses both.
class WireSide {
 public:
  // The forms of a step's activations, by rows of a microbatch.
  void ForgetForms() { forms_.clear(); }
  const MessageForm* FindForm(int64_t rows) const;
  void SetForm(int64_t rows, MessageForm form);
  // Is called when a form is known that was not.
  void OnForm(std::function<void()> call) { on_form_ = std::move(call); }

  // What this side sends lives until it was taken.
  void Keep(int microbatch, Parcel parcel);
  // It was taken: so says a message that came from the other side.
  absl::Status Drop(int microbatch);
  // Waits until no more than so many are left.
  absl::Status DropTo(size_t left);

 private:
  std::map<int64_t, MessageForm> forms_;
  std::function<void()> on_form_;
  std::deque<std::pair<int, Parcel>> sent_;
};

// One end of a link, for one direction. Not thread-safe.
class StageWire {
 public:
  StageWire(const RemoteLinkOptions& options, std::shared_ptr<WireSide> side,
            WireDirection direction);

  void Begin(const LinkStep& step);
  void Close(const absl::Status& reason) { options_.group->Abort(reason); }

  const RemoteLinkOptions& options() const { return options_; }
  WireSide& side() const { return *side_; }
  const LinkStep& step() const { return step_; }
  int64_t rows(int microbatch) const {
    return step_.rows[static_cast<size_t>(microbatch)];
  }
  bool carries_activations() const {
    return direction_ == WireDirection::kActivations;
  }
  bool carries(const TensorForm& form) const {
    return carries_activations() || form.takes_gradient;
  }
  const LinkTraffic& sent() const { return sent_; }

  // `slot`: which of a message's tensors, from 1; 0 is its form.
  absl::StatusOr<PendingCollective> Send(const at::Tensor& tensor,
                                         int microbatch, size_t slot);
  absl::StatusOr<PendingCollective> Receive(const at::Tensor& tensor,
                                            int microbatch, size_t slot) const;
  // Drops what the other side had taken when it sent this message.
  absl::Status DropTaken(int microbatch) const;
  // The microbatch under whose tag a form is told: both sides know the sizes.
  int FirstWithRows(int64_t rows) const;

 private:
  int Tag(int microbatch, size_t slot) const;
  CollectivePurpose Purpose(int microbatch) const;

  RemoteLinkOptions options_;
  std::shared_ptr<WireSide> side_;
  WireDirection direction_;
  LinkStep step_;
  LinkTraffic sent_;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_CHANNEL_STAGE_WIRE_H_
