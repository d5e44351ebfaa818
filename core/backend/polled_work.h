// Polled work: a stream's work as one that the host waits for.

#ifndef TANDEM_CORE_BACKEND_POLLED_WORK_H_
#define TANDEM_CORE_BACKEND_POLLED_WORK_H_

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <exception>
#include <functional>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace tandem {

// What c10d's backends for devices give orders streams when it is waited for,
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

#endif  // TANDEM_CORE_BACKEND_POLLED_WORK_H_
