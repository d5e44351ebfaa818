#include "parallel/channel/local_channel.h"

#include <glog/logging.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/steady_await.h"
#include "core/base/torch_status.h"

namespace tandem {

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
