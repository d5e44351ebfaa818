#include "parallel/channel/remote_stage_link.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <glog/logging.h>

#include <map>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/comm/pending_collective.h"
#include "core/device/memory_category.h"
#include "parallel/channel/message_form.h"
#include "parallel/channel/stage_wire.h"

namespace tandem {
namespace {

class RemoteSender : public StageSender {
 public:
  explicit RemoteSender(StageWire wire) : wire_(std::move(wire)) {}

  void Begin(const LinkStep& step) override { wire_.Begin(step); }
  void Close(const absl::Status& reason) override { wire_.Close(reason); }

  absl::Status Send(int microbatch, const StageMessage& message) override {
    Parcel parcel;
    TANDEM_RETURN_IF_ERROR(SettleForm(microbatch, message, &parcel));
    const MessageForm& form = *wire_.side().FindForm(wire_.rows(microbatch));
    CHECK_EQ(form.size(), message.size());
    for (size_t i = 0; i < form.size(); ++i) {
      if (!wire_.carries(form[i])) continue;
      TANDEM_ASSIGN_OR_RETURN(const at::Tensor tensor, CatchTorchOr([&] {
                                return Arranged(message[i], form[i]);
                              }));
      TANDEM_RETURN_IF_ERROR(Start(tensor, microbatch, i + 1, &parcel));
    }
    wire_.side().Keep(microbatch, std::move(parcel));
    return wire_.side().DropTo(static_cast<size_t>(wire_.options().capacity));
  }

  absl::Status Flush() override { return wire_.side().DropTo(0); }
  LinkTraffic sent() const override { return wire_.sent(); }

 private:
  absl::Status Start(const at::Tensor& tensor, int microbatch, size_t slot,
                     Parcel* parcel) {
    TANDEM_ASSIGN_OR_RETURN(PendingCollective sent,
                            wire_.Send(tensor, microbatch, slot));
    parcel->tensors.push_back(tensor);
    parcel->pending.push_back(std::move(sent));
    return absl::OkStatus();
  }

  // Tells the form with a step's first message of as many rows.
  absl::Status SettleForm(int microbatch, const StageMessage& message,
                          Parcel* parcel) {
    const int64_t rows = wire_.rows(microbatch);
    const MessageForm* const known = wire_.side().FindForm(rows);
    if (!wire_.carries_activations()) {
      CHECK(known != nullptr) << "gradients go back where activations came";
      return absl::OkStatus();
    }
    if (known != nullptr && known->size() == message.size() &&
        absl::c_equal(*known, message, [](const auto& form, const auto& each) {
          return each.defined() && form.Fits(each);
        })) {
      return absl::OkStatus();
    }
    TANDEM_ASSIGN_OR_RETURN(const MessageForm form, FormOf(message));
    if (known != nullptr) return Differs(*known, form, rows);
    TANDEM_ASSIGN_OR_RETURN(const at::Tensor numbers, CatchTorchOr([&] {
                              return Encode(form).to(wire_.options().device);
                            }));
    TANDEM_RETURN_IF_ERROR(
        Start(numbers, wire_.FirstWithRows(rows), 0, parcel));
    wire_.side().SetForm(rows, form);
    return absl::OkStatus();
  }

  absl::Status Differs(const MessageForm& known, const MessageForm& form,
                       int64_t rows) const {
    return absl::InvalidArgumentError(absl::StrCat(
        "what crosses the cut behind stage ", wire_.options().stage, " was ",
        ToString(known), " for ", rows, " samples, and is ", ToString(form),
        " now: between ranks, the shapes of one step's microbatches, and what "
        "takes a gradient, may depend on the number of samples alone"));
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
    forms_coming_.clear();
    if (!wire_.carries_activations()) return;
    for (int microbatch : step.order) {
      // Errors come again when the message is taken.
      AwaitForm(wire_.rows(microbatch)).IgnoreError();
    }
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
    TANDEM_RETURN_IF_ERROR(wire_.DropTaken(microbatch));
    if (wire_.carries_activations()) MarkGradients(microbatch, message);
    return message;
  }

  // Starts the next receives whose forms are known.
  absl::Status ReceiveAhead() {
    const std::vector<int>& order = wire_.step().order;
    while (next_ < order.size() && coming_.size() < kAhead) {
      const int microbatch = order[next_];
      const MessageForm* const form =
          wire_.side().FindForm(wire_.rows(microbatch));
      if (form == nullptr) break;
      TANDEM_ASSIGN_OR_RETURN(coming_[microbatch], Start(microbatch, *form));
      ++next_;
    }
    return absl::OkStatus();
  }

 private:
  // Starts to receive the form of messages of so many rows, once a step.
  absl::Status AwaitForm(int64_t rows) {
    if (forms_coming_.count(rows) > 0) return absl::OkStatus();
    TANDEM_ASSIGN_OR_RETURN(
        at::Tensor numbers, CatchTorchOr([&] {
          return at::empty({EncodedSize()},
                           at::device(wire_.options().device).dtype(at::kLong));
        }));
    TANDEM_ASSIGN_OR_RETURN(
        PendingCollective told,
        wire_.Receive(numbers, wire_.FirstWithRows(rows), 0));
    Parcel parcel;
    parcel.tensors.push_back(numbers);
    parcel.pending.push_back(std::move(told));
    forms_coming_[rows] = std::move(parcel);
    return absl::OkStatus();
  }

  absl::Status LearnForm(int microbatch) {
    const int64_t rows = wire_.rows(microbatch);
    if (wire_.side().FindForm(rows) != nullptr) return absl::OkStatus();
    CHECK(wire_.carries_activations())
        << "gradients come where activations went";
    TANDEM_RETURN_IF_ERROR(AwaitForm(rows));
    Parcel& parcel = forms_coming_.at(rows);
    TANDEM_RETURN_IF_ERROR(parcel.Wait());
    return CatchTorch([&] {
      wire_.side().SetForm(rows, Decode(parcel.tensors.front().cpu()));
    });
  }

  void MarkGradients(int microbatch, const StageMessage& message) const {
    const MessageForm& form = *wire_.side().FindForm(wire_.rows(microbatch));
    for (size_t i = 0; i < form.size(); ++i) {
      message[i].requires_grad_(form[i].takes_gradient);
    }
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
  std::map<int64_t, Parcel> forms_coming_;  // by rows
};

}  // namespace

UpstreamLink MakeUpstreamLink(const RemoteLinkOptions& options) {
  const auto side = std::make_shared<WireSide>();
  auto gradients = std::make_unique<RemoteReceiver>(
      StageWire(options, side, WireDirection::kGradients));
  // They may come as soon as it is known what they look like.
  side->OnForm([receiver = gradients.get()] {
    receiver->ReceiveAhead().IgnoreError();  // it comes again
  });
  return {std::make_unique<RemoteSender>(
              StageWire(options, side, WireDirection::kActivations)),
          std::move(gradients)};
}

DownstreamLink MakeDownstreamLink(const RemoteLinkOptions& options) {
  const auto side = std::make_shared<WireSide>();
  return {std::make_unique<RemoteReceiver>(
              StageWire(options, side, WireDirection::kActivations)),
          std::make_unique<RemoteSender>(
              StageWire(options, side, WireDirection::kGradients))};
}

}  // namespace tandem
