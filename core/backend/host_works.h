// Works of c10d on the host's side: the lock under which they are issued,
// functions that a thread runs as works, and a stream's work that the host
// waits for.

#ifndef TANDEM_CORE_BACKEND_HOST_WORKS_H_
#define TANDEM_CORE_BACKEND_HOST_WORKS_H_

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <deque>
#include <exception>
#include <functional>
#include <thread>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "absl/synchronization/mutex.h"

namespace tandem {

// The process's lock for issuing collectives. c10d's backends of the host
// number what they begin in plain integers, by which ranks find each other
// (ProcessGroupGloo's tags), and several threads begin works of a group. Held
// while a collective is issued, never while it is waited for.
absl::Mutex& IssueMutex();

// A function's work: done when it has returned or thrown.
class FunctionWork : public c10d::Work {
 public:
  FunctionWork(c10d::OpType type, std::vector<at::Tensor> outputs,
               std::function<void()> function);

  void Run();
  std::vector<at::Tensor> result() override { return outputs_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    return future_;
  }

 private:
  const std::vector<at::Tensor> outputs_;
  std::function<void()> function_;
  const c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// Runs functions one after the other on a thread of its own. Thread-safe.
class WorkThread {
 public:
  WorkThread();
  // Runs what it was given first.
  ~WorkThread();
  WorkThread(const WorkThread&) = delete;
  WorkThread& operator=(const WorkThread&) = delete;

  void Add(c10::intrusive_ptr<FunctionWork> work);

 private:
  void Run();

  absl::Mutex mutex_;
  std::deque<c10::intrusive_ptr<FunctionWork>> waiting_ ABSL_GUARDED_BY(mutex_);
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

// Polled work: a stream's work as one that the host waits for. What c10d's
// backends for devices give orders streams when it is waited for,
// and says by polling that it has ended. This one's wait() returns at the end,
// or throws the work's error, and c10::DistBackendError ("timed out") when
// `timeout`, or its own, has passed; the work goes on. Twice a second it calls
// `look`, unless that is null, and throws what that throws, unless the work has
// an error of its own by then: a stream that waits for a rank that has gone
// does not know.
class PolledWork : public c10d::Work {
 public:
  PolledWork(c10::intrusive_ptr<c10d::Work> work,
             std::chrono::milliseconds timeout,
             std::function<void()> look = nullptr);

  bool isCompleted() override { return work_->isCompleted(); }
  bool isSuccess() const override { return work_->isSuccess(); }
  std::exception_ptr exception() const override { return work_->exception(); }
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void synchronize() override { wait(); }
  std::chrono::milliseconds getTimeout() const override { return timeout_; }

 private:
  using Clock = std::chrono::steady_clock;

  // Whether it has ended by then.
  bool AwaitEnd(Clock::time_point deadline, const std::function<void()>& look);
  void Look(const std::function<void()>& look);

  const c10::intrusive_ptr<c10d::Work> work_;
  const std::chrono::milliseconds timeout_;
  const std::function<void()> look_;
};

}  // namespace tandem

#endif  // TANDEM_CORE_BACKEND_HOST_WORKS_H_
