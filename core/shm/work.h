// Shared-memory work: a collective through shared memory, as c10d sees it.

#ifndef TANDEM_CORE_SHM_WORK_H_
#define TANDEM_CORE_SHM_WORK_H_

#include <chrono>
#include <memory>
#include <optional>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "absl/status/status.h"
#include "core/shm/completion_notice.h"
#include "core/shm/point_to_point.h"
#include "core/shm/queue.h"

namespace tandem {

// c10d's exceptions for the errors of a group: DistNetworkError for
// Unavailable, DistBackendError for DeadlineExceeded and others, ValueError for
// InvalidArgument. core/base/torch_status.h turns them back.
std::exception_ptr ToException(const absl::Status& status);

class ShmWork : public c10d::Work, public NotifiesCompletion {
 public:
  // `outputs` are the tensors that it fills.
  ShmWork(c10d::OpType type, std::shared_ptr<ShmQueue> queue,
          std::shared_ptr<ShmTask> task, std::vector<at::Tensor> outputs);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  std::vector<at::Tensor> result() override { return outputs_; }
  // With a `timeout`: throws when it is over; the work goes on.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void synchronize() override { wait(); }
  void OnCompletion(std::function<void()> callback) override {
    queue_->OnDone(*task_, std::move(callback));
  }
  // Completes without anybody's wait(). Holds the outputs.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  const std::shared_ptr<ShmQueue> queue_;
  const std::shared_ptr<ShmTask> task_;
  const std::vector<at::Tensor> outputs_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// A send or a receive. It has no future.
class ShmMailWork : public c10d::Work {
 public:
  ShmMailWork(c10d::OpType type, std::shared_ptr<ShmPointToPoint> mail,
              std::shared_ptr<ShmMessage> message,
              std::chrono::milliseconds timeout);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override { return message_->peer; }
  // With a `timeout`: throws when it is over; the message goes on. The group's
  // timeout holds as well: it counts from the first call. False when it was
  // aborted.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void synchronize() override { wait(); }
  // Ends the wait() that is under way, or else the next one, as Gloo does. The
  // message goes on.
  void abort() override { mail_->CancelWait(*message_); }

 private:
  const std::shared_ptr<ShmPointToPoint> mail_;
  const std::shared_ptr<ShmMessage> message_;
  const std::chrono::milliseconds timeout_;
  std::optional<std::chrono::steady_clock::time_point> deadline_;
};

}  // namespace tandem

#endif  // TANDEM_CORE_SHM_WORK_H_
