#include "parallel/channel/stage_wire.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace tandem {

absl::Status Parcel::Wait() {
  for (PendingCollective& each : pending) {
    TANDEM_RETURN_IF_ERROR(each.Wait());
  }
  return absl::OkStatus();
}

const MessageForm* WireSide::FindForm(int64_t rows) const {
  const auto found = forms_.find(rows);
  return found == forms_.end() ? nullptr : &found->second;
}

void WireSide::SetForm(int64_t rows, MessageForm form) {
  forms_[rows] = std::move(form);
  if (on_form_) on_form_();
}

void WireSide::Keep(int microbatch, Parcel parcel) {
  sent_.emplace_back(microbatch, std::move(parcel));
}

absl::Status WireSide::Drop(int microbatch) {
  const auto found = absl::c_find_if(sent_, [microbatch](const auto& each) {
    return each.first == microbatch;
  });
  if (found == sent_.end()) return absl::OkStatus();
  const absl::Status gone = found->second.Wait();
  if (gone.ok()) sent_.erase(found);
  return gone;
}

absl::Status WireSide::DropTo(size_t left) {
  while (sent_.size() > left) {
    TANDEM_RETURN_IF_ERROR(sent_.front().second.Wait());
    sent_.pop_front();
  }
  return absl::OkStatus();
}

StageWire::StageWire(const RemoteLinkOptions& options,
                     std::shared_ptr<WireSide> side, WireDirection direction)
    : options_(options), side_(std::move(side)), direction_(direction) {}

void StageWire::Begin(const LinkStep& step) {
  step_ = step;
  if (carries_activations()) side_->ForgetForms();
}

absl::StatusOr<PendingCollective> StageWire::Send(const at::Tensor& tensor,
                                                  int microbatch, size_t slot) {
  sent_.messages += 1;
  sent_.bytes += static_cast<int64_t>(tensor.nbytes());
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

absl::Status StageWire::DropTaken(int microbatch) const {
  const auto taken = step_.taken.find(microbatch);
  if (taken == step_.taken.end()) return absl::OkStatus();
  for (int each : taken->second) TANDEM_RETURN_IF_ERROR(side_->Drop(each));
  return absl::OkStatus();
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
