#include "parallel/remote_stage_link.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <glog/logging.h>

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/memory_category.h"
#include "core/pending_collective.h"
#include "core/status_macros.h"
#include "core/torch_status.h"
#include "parallel/message_form.h"
#include "parallel/stage_wire.h"

namespace tandem {
namespace {

class RemoteSender : public StageSender {
 public:
  explicit RemoteSender(StageWire wire) : wire_(std::move(wire)) {}

  void Begin(const LinkStep& step) override { wire_.Begin(step); }
  void Close(const absl::Status& reason) override { wire_.Close(reason); }

  absl::Status Send(int microbatch, const StageMessage& message) override {
    TANDEM_ASSIGN_OR_RETURN(const MessageForm form,
                            FormFor(microbatch, message));
    CHECK_EQ(form.size(), message.size());
    Parcel parcel;
    for (size_t i = 0; i < form.size(); ++i) {
      if (!wire_.carries(form[i])) continue;
      TANDEM_ASSIGN_OR_RETURN(const at::Tensor tensor, CatchTorchOr([&] {
                                return Arranged(message[i], form[i]);
                              }));
      TANDEM_ASSIGN_OR_RETURN(PendingCollective sent,
                              wire_.Send(tensor, microbatch, i + 1));
      parcel.tensors.push_back(tensor);
      parcel.pending.push_back(std::move(sent));
    }
    sent_.push_back(std::move(parcel));
    return FlushTo(static_cast<size_t>(wire_.options().capacity));
  }

  absl::Status Flush() override { return FlushTo(0); }

 private:
  absl::Status FlushTo(size_t left) {
    while (sent_.size() > left) {
      TANDEM_RETURN_IF_ERROR(sent_.front().Wait());
      sent_.pop_front();
    }
    return absl::OkStatus();
  }

  // Tells the form, if the other side cannot know it.
  absl::StatusOr<MessageForm> FormFor(int microbatch,
                                      const StageMessage& message) {
    const int64_t rows = wire_.rows(microbatch);
    std::optional<MessageForm> known = wire_.forms().Find(rows);
    if (!wire_.carries_activations()) {
      CHECK(known.has_value()) << "gradients go back where activations came";
      return *known;
    }
    TANDEM_ASSIGN_OR_RETURN(const MessageForm form, FormOf(message));
    if (!known.has_value()) {
      wire_.forms().Set(rows, form);
      TANDEM_RETURN_IF_ERROR(Tell(form, rows));
      return form;
    }
    for (size_t i = 0; i < form.size(); ++i) {
      if (form.size() == known->size() && (*known)[i].Fits(message[i])) {
        continue;
      }
      return absl::InvalidArgumentError(absl::StrCat(
          "what crosses the cut behind stage ", wire_.options().stage, " was ",
          ToString(*known), " for ", rows, " samples, and is ", ToString(form),
          " now: between ranks, shapes may depend on the number of samples "
          "alone"));
    }
    return *known;
  }

  absl::Status Tell(const MessageForm& form, int64_t rows) {
    TANDEM_ASSIGN_OR_RETURN(const at::Tensor numbers, CatchTorchOr([&] {
                              return Encode(form).to(wire_.options().device);
                            }));
    TANDEM_ASSIGN_OR_RETURN(PendingCollective told,
                            wire_.Send(numbers, wire_.FirstWithRows(rows), 0));
    Parcel parcel;
    parcel.tensors.push_back(numbers);
    parcel.pending.push_back(std::move(told));
    sent_.push_back(std::move(parcel));
    return absl::OkStatus();
  }

  at::Tensor Arranged(const at::Tensor& tensor, const TensorForm& form) const {
    const at::NoGradGuard no_grad;
    if (tensor.defined() && tensor.strides() == form.strides) {
      return tensor.detach();
    }
    const at::Tensor arranged = NewTensor(form, wire_.options().device);
    return tensor.defined() ? arranged.copy_(tensor) : arranged.zero_();
  }

  StageWire wire_;
  std::deque<Parcel> sent_;
};

// Messages that may come while one is worked on.
constexpr size_t kAhead = 2;

class RemoteReceiver : public StageReceiver {
 public:
  explicit RemoteReceiver(StageWire wire) : wire_(std::move(wire)) {}

  void Begin(const LinkStep& step) override {
    wire_.Begin(step);
    next_ = 0;
    coming_.clear();
    // Errors come again when the message is taken.
    ReceiveAhead().IgnoreError();
  }
  void Close(const absl::Status& reason) override { wire_.Close(reason); }

  absl::StatusOr<StageMessage> Receive(int microbatch) override {
    TANDEM_RETURN_IF_ERROR(LearnForm(microbatch));
    TANDEM_RETURN_IF_ERROR(ReceiveAhead());
    const auto found = coming_.find(microbatch);
    CHECK(found != coming_.end())
        << "microbatch " << microbatch << " is received out of turn";
    TANDEM_RETURN_IF_ERROR(found->second.Wait());
    StageMessage message = std::move(found->second.tensors);
    coming_.erase(found);
    TANDEM_RETURN_IF_ERROR(ReceiveAhead());
    return message;
  }

 private:
  absl::Status LearnForm(int microbatch) {
    const int64_t rows = wire_.rows(microbatch);
    if (wire_.forms().Find(rows).has_value()) return absl::OkStatus();
    CHECK(wire_.carries_activations())
        << "gradients come where activations went";
    TANDEM_ASSIGN_OR_RETURN(
        at::Tensor numbers, CatchTorchOr([&] {
          return at::empty({EncodedSize()},
                           at::device(wire_.options().device).dtype(at::kLong));
        }));
    TANDEM_ASSIGN_OR_RETURN(
        PendingCollective told,
        wire_.Receive(numbers, wire_.FirstWithRows(rows), 0));
    TANDEM_RETURN_IF_ERROR(told.Wait());
    return CatchTorch([&] { wire_.forms().Set(rows, Decode(numbers.cpu())); });
  }

  // Starts the next receives whose forms are known.
  absl::Status ReceiveAhead() {
    const std::vector<int>& order = wire_.step().order;
    while (next_ < order.size() && coming_.size() < kAhead) {
      const int microbatch = order[next_];
      const auto form = wire_.forms().Find(wire_.rows(microbatch));
      if (!form.has_value()) break;
      TANDEM_ASSIGN_OR_RETURN(coming_[microbatch], Start(microbatch, *form));
      ++next_;
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Parcel> Start(int microbatch, const MessageForm& form) {
    const MemoryCategoryScope scope(MemoryCategory::kActivations);
    Parcel parcel;
    for (size_t i = 0; i < form.size(); ++i) {
      at::Tensor tensor;
      if (wire_.carries(form[i])) {
        TANDEM_ASSIGN_OR_RETURN(tensor, CatchTorchOr([&] {
                                  return NewTensor(form[i],
                                                   wire_.options().device);
                                }));
        TANDEM_ASSIGN_OR_RETURN(PendingCollective coming,
                                wire_.Receive(tensor, microbatch, i + 1));
        parcel.pending.push_back(std::move(coming));
      }
      parcel.tensors.push_back(tensor);
    }
    return parcel;
  }

  StageWire wire_;
  size_t next_ = 0;  // in the step's order: not yet started
  std::map<int, Parcel> coming_;
};

}  // namespace

UpstreamLink MakeUpstreamLink(const RemoteLinkOptions& options) {
  const auto forms = std::make_shared<WireForms>();
  return {std::make_unique<RemoteSender>(
              StageWire(options, forms, WireDirection::kActivations)),
          std::make_unique<RemoteReceiver>(
              StageWire(options, forms, WireDirection::kGradients))};
}

DownstreamLink MakeDownstreamLink(const RemoteLinkOptions& options) {
  const auto forms = std::make_shared<WireForms>();
  return {std::make_unique<RemoteReceiver>(
              StageWire(options, forms, WireDirection::kActivations)),
          std::make_unique<RemoteSender>(
              StageWire(options, forms, WireDirection::kGradients))};
}

}  // namespace tandem
