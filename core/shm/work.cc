#include "core/shm/work.h"

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <c10/util/Exception.h>

#include <exception>
#include <string>
#include <utility>

namespace tandem {
namespace {

template <typename Error>
std::exception_ptr Make(const std::string& message) {
  return std::make_exception_ptr(
      Error(c10::SourceLocation{__func__, __FILE__, __LINE__}, message));
}

}  // namespace

std::exception_ptr ToException(const absl::Status& status) {
  const std::string message(status.message());
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return nullptr;
    case absl::StatusCode::kUnavailable:
      return Make<c10::DistNetworkError>(message);
    case absl::StatusCode::kInvalidArgument:
      return Make<c10::ValueError>(message);
    default:
      return Make<c10::DistBackendError>(message);
  }
}

ShmWork::ShmWork(c10d::OpType type, std::shared_ptr<ShmQueue> queue,
                 std::shared_ptr<ShmTask> task, std::vector<at::Tensor> outputs)
    : c10d::Work(-1, type),
      queue_(std::move(queue)),
      task_(std::move(task)),
      outputs_(std::move(outputs)) {}

bool ShmWork::isCompleted() {
  if (!task_->done()) queue_->WakeWorker();
  return task_->done();
}

bool ShmWork::isSuccess() const {
  return task_->done() && task_->status().ok();
}

std::exception_ptr ShmWork::exception() const {
  return task_->done() ? ToException(task_->status()) : nullptr;
}

bool ShmWork::wait(std::chrono::milliseconds timeout) {
  const absl::Status status = queue_->Wait(*task_, timeout);
  if (!status.ok()) std::rethrow_exception(ToException(status));
  return true;
}

c10::intrusive_ptr<c10::ivalue::Future> ShmWork::getFuture() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (future_ != nullptr) return future_;
  future_ = c10::make_intrusive<c10::ivalue::Future>(
      c10::ListType::create(c10::TensorType::get()));
  queue_->OnDone(*task_, [future = future_, task = task_, outputs = outputs_] {
    if (task->status().ok()) {
      future->markCompleted(c10::IValue(outputs));
    } else {
      future->setError(ToException(task->status()));
    }
  });
  if (!task_->done()) queue_->WakeWorker();
  return future_;
}

ShmMailWork::ShmMailWork(c10d::OpType type,
                         std::shared_ptr<ShmPointToPoint> mail,
                         std::shared_ptr<ShmMessage> message,
                         std::chrono::milliseconds timeout)
    : c10d::Work(-1, type),
      mail_(std::move(mail)),
      message_(std::move(message)),
      timeout_(timeout) {}

bool ShmMailWork::isCompleted() { return mail_->Test(*message_); }

bool ShmMailWork::isSuccess() const {
  return message_->done() && message_->status.ok();
}

std::exception_ptr ShmMailWork::exception() const {
  return message_->done() ? ToException(message_->status) : nullptr;
}

bool ShmMailWork::wait(std::chrono::milliseconds timeout) {
  const auto now = std::chrono::steady_clock::now();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!deadline_.has_value()) deadline_ = now + timeout_;
  }
  const absl::Status status = mail_->Wait(
      *message_, *deadline_,
      timeout.count() > 0 ? now + timeout : ShmPointToPoint::Deadline::max());
  if (absl::IsCancelled(status)) return false;
  if (!status.ok()) std::rethrow_exception(ToException(status));
  return true;
}

}  // namespace tandem
