#include "parallel/channel/copy_channel.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <glog/logging.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/steady_await.h"
#include "core/base/torch_status.h"

namespace tandem {
namespace {

using torch::autograd::variable_list;
using DirectionPointer = std::shared_ptr<const CopyDirection>;

variable_list DifferentiableCopy(const DirectionPointer& there,
                                 const DirectionPointer& back,
                                 at::TensorList tensors);

// The next holder of the tensors may write to them: a user to an activation,
// autograd to a gradient that it adds another to.
PendingCopy StartAndRelease(const CopyDirection& direction,
                            at::TensorList tensors) {
  PendingCopy copy = direction.Start(tensors);
  if (direction.has_streams()) copy.Release(CurrentStream(direction.source()));
  return copy;
}

// Takes gradients back. The stream that forward computed on at the source is
// the one that autograd goes on with there.
class CopyBackward : public torch::autograd::Node {
 public:
  CopyBackward(DirectionPointer there, DirectionPointer back)
      : there_(std::move(there)), back_(std::move(back)) {
    if (back_->has_streams()) stream_ = CurrentStream(there_->source());
  }

  std::string name() const override { return "CopyBackward"; }

  variable_list apply(variable_list&& gradients) override {
    if (at::GradMode::is_enabled()) {
      return DifferentiableCopy(back_, there_, gradients);
    }
    PendingCopy copy = StartAndRelease(*back_, gradients);
    if (stream_) copy.Await(*stream_);
    return copy.Take();
  }

 private:
  DirectionPointer there_;
  DirectionPointer back_;
  std::optional<c10::Stream> stream_;
};

variable_list DifferentiableCopy(const DirectionPointer& there,
                                 const DirectionPointer& back,
                                 at::TensorList tensors) {
  if (there->source() == there->destination()) return tensors.vec();
  variable_list copies = StartAndRelease(*there, tensors).Take();
  variable_list inputs;
  variable_list outputs;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!torch::autograd::compute_requires_grad(tensors[i])) continue;
    inputs.push_back(tensors[i]);
    outputs.push_back(copies[i]);
  }
  if (inputs.empty()) return copies;
  const auto node = c10::make_intrusive<CopyBackward>(there, back);
  node->set_next_edges(torch::autograd::collect_next_edges(inputs));
  torch::autograd::set_history(outputs, node);
  return copies;
}

}  // namespace

OwnStream NewStream(c10::Device device) {
  if (!c10::impl::hasDeviceGuardImpl(device.type())) return nullptr;
  try {
    OwnStream stream = TakeStream(device);
    return stream->id() == 0 ? nullptr : stream;  // 0: the default one
  } catch (const c10::Error&) {
    return nullptr;  // "Backend doesn't support create a new Stream."
  }
}

c10::Stream CurrentStream(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

std::vector<c10::Stream> CurrentStreams(
    const std::vector<c10::Device>& devices) {
  std::vector<c10::Stream> streams;
  for (const c10::Device& device : devices) {
    if (!device.is_cpu()) streams.push_back(CurrentStream(device));
  }
  return streams;
}

void StreamOrder::FollowProducer(const c10::Stream& copying,
                                 const c10::Stream& producer) const {
  c10::Event produced(producer.device_type());
  produced.record(producer);
  produced.block(copying);
}

void StreamOrder::FollowCopy(const c10::Stream& consumer,
                             const c10::Event& copied) const {
  copied.block(consumer);
}

void StreamOrder::Keep(const at::Tensor& tensor,
                       const c10::Stream& stream) const {
  if (!tensor.has_storage()) return;
  c10::impl::VirtualGuardImpl(stream.device_type())
      .recordDataPtrOnStream(tensor.storage().data_ptr(), stream);
}

bool IsOn(const at::Tensor& tensor, c10::Device device) {
  const c10::Device tensor_device = tensor.device();
  return tensor_device == device ||
         (tensor_device.type() == device.type() && !tensor_device.has_index());
}

PendingCopy::PendingCopy(c10::Device destination,
                         std::shared_ptr<const StreamOrder> order)
    : destination_(destination), order_(std::move(order)) {}

void PendingCopy::Await(const c10::Stream& consumer) const {
  if (copied_.empty()) return;
  for (const c10::Event& copied : copied_) order_->FollowCopy(consumer, copied);
  for (const at::Tensor& copy : copies_) {
    if (copy.defined()) order_->Keep(copy, consumer);
  }
}

void PendingCopy::Release(const c10::Stream& producer) const {
  for (const c10::Event& copied : copied_) order_->FollowCopy(producer, copied);
}

std::vector<at::Tensor> PendingCopy::Take() {
  if (!copied_.empty()) Await(CurrentStream(destination_));
  return std::move(copies_);
}

CopyDirection::CopyDirection(c10::Device source, c10::Device destination,
                             std::shared_ptr<const StreamOrder> order)
    : source_(source), destination_(destination), order_(std::move(order)) {
  // Between devices of two types a copy that has not ended could not be told
  // to the side without streams.
  if (source == destination || source.type() != destination.type()) return;
  const OwnStream from = NewStream(source);
  if (from == nullptr) return;
  const OwnStream to = NewStream(destination);
  if (to != nullptr) streams_ = Streams{from, to};
}

PendingCopy CopyDirection::Start(at::TensorList tensors) const {
  for (const at::Tensor& tensor : tensors) {
    TORCH_CHECK(!tensor.defined() || IsOn(tensor, source_), "a tensor on ",
                tensor.device(), " was given to be copied from ", source_,
                " to ", destination_);
  }
  const at::NoGradGuard no_grad;
  if (streams_) return StartOnStreams(tensors);
  PendingCopy pending(destination_, order_);
  for (const at::Tensor& tensor : tensors) {
    pending.copies_.push_back(CopyForDestination(tensor));
  }
  return pending;
}

at::Tensor CopyDirection::CopyForDestination(const at::Tensor& tensor) const {
  if (!tensor.defined() || source_ == destination_) return tensor;
  return tensor.to(tensor.options().device(destination_),
                   /*non_blocking=*/streams_.has_value(), /*copy=*/true,
                   at::MemoryFormat::Preserve);
}

// On which of the two streams a device type copies is its own affair.
PendingCopy CopyDirection::StartOnStreams(at::TensorList tensors) const {
  const c10::Stream producer = CurrentStream(source_);
  const std::array<c10::Stream, 2> both = {*streams_->source,
                                           *streams_->destination};
  for (const c10::Stream& stream : both) {
    order_->FollowProducer(stream, producer);
  }
  PendingCopy pending(destination_, order_);
  {
    const c10::MultiStreamGuard guard(both);
    for (const at::Tensor& tensor : tensors) {
      pending.copies_.push_back(CopyForDestination(tensor));
    }
  }
  for (const c10::Stream& stream : both) {
    for (const at::Tensor& tensor : tensors) {
      if (tensor.defined()) order_->Keep(tensor, stream);
    }
    pending.copied_.emplace_back(stream.device_type());
    pending.copied_.back().record(stream);
  }
  return pending;
}

CopyChannel::CopyChannel(c10::Device source, c10::Device destination,
                         std::shared_ptr<const StreamOrder> order)
    : there_(std::make_shared<CopyDirection>(source, destination, order)),
      back_(std::make_shared<CopyDirection>(destination, source, order)) {}

at::Tensor CopyChannel::Copy(const at::Tensor& tensor) const {
  return DifferentiableCopy(there_, back_, tensor)[0];
}

std::vector<at::Tensor> CopyChannel::Copy(at::TensorList tensors) const {
  return DifferentiableCopy(there_, back_, tensors);
}

LocalChannel::LocalChannel(CopyDirection copies, int capacity,
                           std::chrono::milliseconds timeout, Label label)
    : copies_(std::move(copies)),
      capacity_(static_cast<size_t>(capacity)),
      timeout_(absl::FromChrono(timeout)),
      label_(std::move(label)) {
  CHECK_GE(capacity, 1);
}

std::string LocalChannel::Describe(int microbatch) const {
  return absl::StrCat(label_.what, " of microbatch ", microbatch, " ",
                      label_.stage);
}

void LocalChannel::Begin(const ChannelStep& /*step*/) {
  absl::MutexLock lock(&mutex_);
  closed_ = absl::OkStatus();
  waiting_.clear();
}

absl::Status LocalChannel::Send(int microbatch, const StageMessage& message) {
  absl::MutexLock lock(&mutex_);
  const auto may_go = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !closed_.ok() || waiting_.size() < capacity_;
  };
  if (!AwaitSteadily(mutex_, absl::Condition(&may_go), timeout_)) {
    return absl::DeadlineExceededError(absl::StrCat(
        "the ", Describe(microbatch),
        " could not be handed over: ", waiting_.size(),
        " before it were not taken within ", absl::FormatDuration(timeout_)));
  }
  if (!closed_.ok()) return closed_;
  return CatchTorch([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    Waiting sent = {copies_.Start(message), {}};
    for (const at::Tensor& each : message) {
      sent.takes_gradient.push_back(each.defined() && each.requires_grad());
    }
    const bool is_new = waiting_.emplace(microbatch, std::move(sent)).second;
    CHECK(is_new) << "microbatch " << microbatch << " was sent twice";
  });
}

absl::StatusOr<StageMessage> LocalChannel::Receive(int microbatch) {
  absl::MutexLock lock(&mutex_);
  const auto came = [this, microbatch]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !closed_.ok() || waiting_.count(microbatch) > 0;
  };
  if (!AwaitSteadily(mutex_, absl::Condition(&came), timeout_)) {
    return absl::DeadlineExceededError(
        absl::StrCat("the ", Describe(microbatch), " did not come within ",
                     absl::FormatDuration(timeout_)));
  }
  if (!closed_.ok()) return closed_;
  auto sent = waiting_.extract(microbatch);
  return CatchTorchOr([&] {
    StageMessage message = sent.mapped().copies.Take();
    for (size_t i = 0; i < message.size(); ++i) {
      if (sent.mapped().takes_gradient[i]) message[i].requires_grad_();
    }
    return message;
  });
}

void LocalChannel::Close(const absl::Status& reason) {
  CHECK(!reason.ok());
  absl::MutexLock lock(&mutex_);
  if (closed_.ok()) closed_ = reason;
  waiting_.clear();
}

}  // namespace tandem
