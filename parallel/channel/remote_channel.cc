#include "parallel/channel/remote_channel.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
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
#include "parallel/channel/message_layout.h"
#include "parallel/channel/remote_channel_end.h"

namespace tandem {
namespace {

class RemoteSender : public ChannelSender {
 public:
  explicit RemoteSender(RemoteChannelEnd end) : end_(std::move(end)) {}

  void Begin(const ChannelStep& step) override { end_.Begin(step); }
  void Close(const absl::Status& reason) override { end_.Close(reason); }

  absl::Status Send(int microbatch, const StageMessage& message) override {
    InFlightMessage in_flight;
    TANDEM_RETURN_IF_ERROR(SettleLayout(microbatch, message, &in_flight));
    const MessageLayout& layout =
        *end_.side().FindLayout(end_.rows(microbatch));
    CHECK_EQ(layout.size(), message.size());
    for (size_t i = 0; i < layout.size(); ++i) {
      if (!end_.carries(layout[i])) continue;
      TANDEM_ASSIGN_OR_RETURN(const at::Tensor tensor, CatchTorchOr([&] {
                                return Arranged(message[i], layout[i]);
                              }));
      TANDEM_RETURN_IF_ERROR(Start(tensor, microbatch, i + 1, &in_flight));
    }
    end_.side().Keep(microbatch, std::move(in_flight));
    return end_.side().DropTo(static_cast<size_t>(end_.options().capacity));
  }

  absl::Status Flush() override { return end_.side().DropTo(0); }
  ChannelTraffic sent() const override { return end_.sent(); }

 private:
  absl::Status Start(const at::Tensor& tensor, int microbatch, size_t slot,
                     InFlightMessage* in_flight) {
    TANDEM_ASSIGN_OR_RETURN(PendingCollective sent,
                            end_.Send(tensor, microbatch, slot));
    in_flight->tensors.push_back(tensor);
    in_flight->pending.push_back(std::move(sent));
    return absl::OkStatus();
  }

  // Tells the layout with a step's first message of as many rows.
  absl::Status SettleLayout(int microbatch, const StageMessage& message,
                            InFlightMessage* in_flight) {
    const int64_t rows = end_.rows(microbatch);
    const MessageLayout* const known = end_.side().FindLayout(rows);
    if (!end_.carries_activations()) {
      CHECK(known != nullptr) << "gradients go back where activations came";
      return absl::OkStatus();
    }
    if (known != nullptr && known->size() == message.size() &&
        absl::c_equal(*known, message,
                      [](const auto& layout, const auto& each) {
                        return each.defined() && layout.Fits(each);
                      })) {
      return absl::OkStatus();
    }
    TANDEM_ASSIGN_OR_RETURN(const MessageLayout layout,
                            MakeMessageLayout(message));
    if (known != nullptr) return Differs(*known, layout, rows);
    const at::Tensor told =
        at::cat({Encode(layout), Encode(MakeStepForm(end_.step()))});
    TANDEM_RETURN_IF_ERROR(Start(told, end_.FirstWithRows(rows), 0, in_flight));
    end_.side().SetLayout(rows, layout);
    return absl::OkStatus();
  }

  absl::Status Differs(const MessageLayout& known, const MessageLayout& layout,
                       int64_t rows) const {
    return absl::InvalidArgumentError(absl::StrCat(
        "what crosses the cut behind stage ", end_.options().stage, " was ",
        ToString(known), " for ", rows, " samples, and is ", ToString(layout),
        " now: between ranks, the shapes of one step's microbatches, and what "
        "takes a gradient, may depend on the number of samples alone"));
  }

  at::Tensor Arranged(const at::Tensor& tensor,
                      const TensorLayout& layout) const {
    const at::NoGradGuard no_grad;
    if (tensor.defined() && tensor.strides() == layout.strides) {
      return tensor.detach();
    }
    const at::Tensor arranged = NewTensor(layout, end_.options().device);
    return tensor.defined() ? arranged.copy_(tensor) : arranged.zero_();
  }

  RemoteChannelEnd end_;
};

// Messages that may come while one is worked on. On a GPU a receive that waits
// for its sender keeps some of the processors.
constexpr size_t kAhead = 2;
constexpr size_t kAheadOnLane = 1;

class RemoteReceiver : public ChannelReceiver {
 public:
  explicit RemoteReceiver(RemoteChannelEnd end) : end_(std::move(end)) {}

  void Begin(const ChannelStep& step) override {
    end_.Begin(step);
    next_ = 0;
    coming_.clear();
    layouts_coming_.clear();
    if (!end_.carries_activations()) return;
    for (int microbatch : step.order) {
      // Errors come again when the message is taken.
      AwaitLayout(end_.rows(microbatch)).IgnoreError();
    }
  }
  void Close(const absl::Status& reason) override { end_.Close(reason); }

  absl::StatusOr<StageMessage> Receive(int microbatch) override {
    TANDEM_RETURN_IF_ERROR(ReceiveUntil(microbatch));
    const auto found = coming_.find(microbatch);
    CHECK(found != coming_.end())
        << "microbatch " << microbatch << " is received out of turn";
    TANDEM_RETURN_IF_ERROR(found->second.Wait());
    StageMessage message = std::move(found->second.tensors);
    coming_.erase(found);
    TANDEM_RETURN_IF_ERROR(ReceiveAhead());
    TANDEM_RETURN_IF_ERROR(end_.DropTaken(microbatch));
    if (end_.carries_activations()) MarkGradients(microbatch, message);
    return message;
  }

  // Starts the next receives whose layouts are known.
  absl::Status ReceiveAhead() {
    const std::vector<int>& order = end_.receives();
    const size_t ahead = end_.has_lane() ? kAheadOnLane : kAhead;
    while (next_ < order.size() && coming_.size() < ahead) {
      const bool is_known =
          end_.side().FindLayout(end_.rows(order[next_])) != nullptr;
      if (!is_known) break;
      TANDEM_RETURN_IF_ERROR(StartNext());
    }
    return absl::OkStatus();
  }

 private:
  absl::Status StartNext() {
    const int microbatch = end_.receives()[next_++];
    const MessageLayout& layout =
        *end_.side().FindLayout(end_.rows(microbatch));
    TANDEM_ASSIGN_OR_RETURN(coming_[microbatch], Start(microbatch, layout));
    return absl::OkStatus();
  }

  // Receives the messages before it, too, whose layouts come before.
  absl::Status ReceiveUntil(int microbatch) {
    const std::vector<int>& order = end_.receives();
    while (coming_.count(microbatch) == 0 && next_ < order.size()) {
      TANDEM_RETURN_IF_ERROR(ReadLayout(order[next_]));
      TANDEM_RETURN_IF_ERROR(StartNext());
    }
    return ReceiveAhead();
  }

  // Starts to receive the layout of messages of so many rows, once a step.
  absl::Status AwaitLayout(int64_t rows) {
    if (layouts_coming_.count(rows) > 0) return absl::OkStatus();
    const at::Tensor numbers =
        at::empty({EncodedSize() + kStepFormNumbers}, at::kLong);
    TANDEM_ASSIGN_OR_RETURN(PendingCollective told,
                            end_.Receive(numbers, end_.FirstWithRows(rows), 0));
    InFlightMessage in_flight;
    in_flight.tensors.push_back(numbers);
    in_flight.pending.push_back(std::move(told));
    layouts_coming_[rows] = std::move(in_flight);
    return absl::OkStatus();
  }

  absl::Status ReadLayout(int microbatch) {
    const int64_t rows = end_.rows(microbatch);
    if (end_.side().FindLayout(rows) != nullptr) return absl::OkStatus();
    CHECK(end_.carries_activations())
        << "gradients come where activations went";
    // Where batches differ others may not come.
    TANDEM_RETURN_IF_ERROR(TakeLayout(end_.rows(end_.step().sent.front())));
    return TakeLayout(rows);
  }

  absl::Status TakeLayout(int64_t rows) {
    if (end_.side().FindLayout(rows) != nullptr) return absl::OkStatus();
    TANDEM_RETURN_IF_ERROR(AwaitLayout(rows));
    InFlightMessage& in_flight = layouts_coming_.at(rows);
    TANDEM_RETURN_IF_ERROR(in_flight.Wait());
    return CatchTorch([&]() -> absl::Status {
      const at::Tensor& told = in_flight.tensors.front();
      TANDEM_RETURN_IF_ERROR(CheckStep(
          DecodeStepForm(told.narrow(0, EncodedSize(), kStepFormNumbers))));
      end_.side().SetLayout(rows, Decode(told.narrow(0, 0, EncodedSize())));
      return absl::OkStatus();
    });
  }

  absl::Status CheckStep(const StepForm& theirs) const {
    const Communicator& group = *end_.options().group;
    return CheckSameStep(theirs, group.NameOf(end_.options().peer),
                         MakeStepForm(end_.step()), group.NameOf(group.rank()));
  }

  void MarkGradients(int microbatch, const StageMessage& message) const {
    const MessageLayout& layout =
        *end_.side().FindLayout(end_.rows(microbatch));
    for (size_t i = 0; i < layout.size(); ++i) {
      message[i].requires_grad_(layout[i].takes_gradient);
    }
  }

  absl::StatusOr<InFlightMessage> Start(int microbatch,
                                        const MessageLayout& layout) {
    const MemoryCategoryScope scope(MemoryCategory::kActivations);
    InFlightMessage in_flight;
    for (size_t i = 0; i < layout.size(); ++i) {
      at::Tensor tensor;
      if (end_.carries(layout[i])) {
        TANDEM_ASSIGN_OR_RETURN(tensor, CatchTorchOr([&] {
                                  return NewTensor(layout[i],
                                                   end_.options().device);
                                }));
        TANDEM_ASSIGN_OR_RETURN(PendingCollective coming,
                                end_.Receive(tensor, microbatch, i + 1));
        in_flight.pending.push_back(std::move(coming));
      }
      in_flight.tensors.push_back(tensor);
    }
    return in_flight;
  }

  RemoteChannelEnd end_;
  size_t next_ = 0;  // in the step's order: not yet started
  std::map<int, InFlightMessage> coming_;
  std::map<int64_t, InFlightMessage> layouts_coming_;  // by rows
};

}  // namespace

UpstreamEnds MakeUpstreamEnds(const RemoteChannelOptions& options) {
  const auto side = std::make_shared<RemoteChannelSide>();
  auto gradients = std::make_unique<RemoteReceiver>(
      RemoteChannelEnd(options, side, ChannelDirection::kGradients));
  // They may come as soon as it is known what they look like.
  side->OnLayout([receiver = gradients.get()] {
    receiver->ReceiveAhead().IgnoreError();  // it comes again
  });
  return {std::make_unique<RemoteSender>(
              RemoteChannelEnd(options, side, ChannelDirection::kActivations)),
          std::move(gradients)};
}

DownstreamEnds MakeDownstreamEnds(const RemoteChannelOptions& options) {
  const auto side = std::make_shared<RemoteChannelSide>();
  return {std::make_unique<RemoteReceiver>(
              RemoteChannelEnd(options, side, ChannelDirection::kActivations)),
          std::make_unique<RemoteSender>(
              RemoteChannelEnd(options, side, ChannelDirection::kGradients))};
}

}  // namespace tandem
