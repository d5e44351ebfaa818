#include "parallel/stage_wire.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status_macros.h"

namespace tandem {

std::optional<MessageForm> WireForms::Find(int64_t rows) const {
  absl::MutexLock lock(&mutex_);
  const auto found = forms_.find(rows);
  if (found == forms_.end()) return std::nullopt;
  return found->second;
}

void WireForms::Set(int64_t rows, const MessageForm& form) {
  absl::MutexLock lock(&mutex_);
  forms_[rows] = form;
}

absl::Status Parcel::Wait() {
  for (PendingCollective& each : pending) {
    TANDEM_RETURN_IF_ERROR(each.Wait());
  }
  return absl::OkStatus();
}

StageWire::StageWire(const RemoteLinkOptions& options,
                     std::shared_ptr<WireForms> forms, WireDirection direction)
    : options_(options), forms_(std::move(forms)), direction_(direction) {}

absl::StatusOr<PendingCollective> StageWire::Send(const at::Tensor& tensor,
                                                  int microbatch,
                                                  size_t slot) const {
  return options_.group->StartSend(FlatView(tensor), options_.peer,
                                   Tag(microbatch, slot), Purpose(microbatch));
}

absl::StatusOr<PendingCollective> StageWire::Receive(const at::Tensor& tensor,
                                                     int microbatch,
                                                     size_t slot) const {
  return options_.group->StartReceive(FlatView(tensor), options_.peer,
                                      Tag(microbatch, slot),
                                      Purpose(microbatch));
}

int StageWire::FirstWithRows(int64_t rows) const {
  const auto& all = step_.rows;
  return static_cast<int>(std::find(all.begin(), all.end(), rows) -
                          all.begin());
}

int StageWire::Tag(int microbatch, size_t slot) const {
  const int lane = 2 * options_.stage + (carries_activations() ? 0 : 1);
  return (lane * options_.microbatches + microbatch) *
             static_cast<int>(kMostTensors + 1) +
         static_cast<int>(slot);
}

// By values: what was started may outlive this end.
CollectivePurpose StageWire::Purpose(int microbatch) const {
  return [activations = carries_activations(), stage = options_.stage,
          microbatch] {
    return activations ? absl::StrCat("activations of microbatch ", microbatch,
                                      " from stage ", stage)
                       : absl::StrCat("gradients of microbatch ", microbatch,
                                      " for stage ", stage);
  };
}

}  // namespace tandem
