// What both ends of a link between ranks have in common: how messages are
// addressed, and what form they have.

#ifndef TANDEM_PARALLEL_STAGE_WIRE_H_
#define TANDEM_PARALLEL_STAGE_WIRE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "core/pending_collective.h"
#include "parallel/message_form.h"
#include "parallel/remote_stage_link.h"
#include "parallel/stage_link.h"

namespace tandem {

enum class WireDirection { kActivations, kGradients };

// The forms of activations by rows of a microbatch, known to both ends of a
// side. Thread-safe.
class WireForms {
 public:
  std::optional<MessageForm> Find(int64_t rows) const;
  void Set(int64_t rows, const MessageForm& form);

 private:
  mutable absl::Mutex mutex_;
  std::map<int64_t, MessageForm> forms_ ABSL_GUARDED_BY(mutex_);
};

// A message on its way: its tensors live until they have gone or come.
struct Parcel {
  StageMessage tensors;
  std::vector<PendingCollective> pending;

  absl::Status Wait();
};

// One end of a link, for one direction. Not thread-safe.
class StageWire {
 public:
  StageWire(const RemoteLinkOptions& options, std::shared_ptr<WireForms> forms,
            WireDirection direction);

  void Begin(const LinkStep& step) { step_ = step; }
  void Close(const absl::Status& reason) { options_.group->Abort(reason); }

  const RemoteLinkOptions& options() const { return options_; }
  WireForms& forms() const { return *forms_; }
  const LinkStep& step() const { return step_; }
  int64_t rows(int microbatch) const {
    return step_.rows[static_cast<size_t>(microbatch)];
  }
  bool carries_activations() const {
    return direction_ == WireDirection::kActivations;
  }
  bool carries(const TensorForm& form) const {
    return carries_activations() || form.has_gradient();
  }

  // `slot`: which of a message's tensors, from 1; 0 is its form.
  absl::StatusOr<PendingCollective> Send(const at::Tensor& tensor,
                                         int microbatch, size_t slot) const;
  absl::StatusOr<PendingCollective> Receive(const at::Tensor& tensor,
                                            int microbatch, size_t slot) const;
  // The microbatch under whose tag a form is told: both sides know the sizes.
  int FirstWithRows(int64_t rows) const;

 private:
  int Tag(int microbatch, size_t slot) const;
  CollectivePurpose Purpose(int microbatch) const;

  RemoteLinkOptions options_;
  std::shared_ptr<WireForms> forms_;
  WireDirection direction_;
  LinkStep step_;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_STAGE_WIRE_H_
