// A stream's work, which says by polling that it has ended, as one that the
// host waits for.

#include "core/backend/polled_work.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>

#include "core/base/torch_status.h"

namespace tandem::polled_work_test {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

// Ends when it is told; its wait() returns at once, as a stream's does.
class StreamWork : public c10d::Work {
 public:
  bool isCompleted() override {
    if (looks_left_ > 0 && --looks_left_ == 0) End(its_error_);
    return ended_;
  }
  std::exception_ptr exception() const override { return error_; }
  bool wait(milliseconds) override { return true; }
  void End(std::exception_ptr error = nullptr) {
    error_ = std::move(error);
    ended_ = true;
  }
  // By itself, at that look at it from now on; on the thread that looks.
  void EndAtLook(int look, std::exception_ptr error) {
    its_error_ = std::move(error);
    looks_left_ = look;
  }

 private:
  std::exception_ptr error_;
  int looks_left_ = 0;
  std::exception_ptr its_error_;
  std::atomic<bool> ended_{false};
};

absl::Status WaitFor(PolledWork& work, milliseconds timeout = kNoTimeout) {
  return CatchTorch([&] { work.wait(timeout); });
}

std::exception_ptr Error(const std::string& text) {
  return std::make_exception_ptr(std::runtime_error(text));
}

TEST(PolledWork, WaitsForTheEnd) {
  const auto stream = c10::make_intrusive<StreamWork>();
  PolledWork work(stream, milliseconds(60000));
  std::atomic<bool> ends{false};
  std::thread ender([&] {
    std::this_thread::sleep_for(milliseconds(50));
    ends = true;
    stream->End();
  });
  EXPECT_TRUE(WaitFor(work).ok());
  EXPECT_TRUE(ends);
  ender.join();
}

TEST(PolledWork, ThrowsWhatTheWorkEndsWith) {
  const auto stream = c10::make_intrusive<StreamWork>();
  stream->End(Error("aborted"));
  PolledWork work(stream, milliseconds(60000));
  EXPECT_THAT(std::string(WaitFor(work).message()), HasSubstr("aborted"));
}

TEST(PolledWork, TimesOutAndMayBeWaitedForAgain) {
  const auto stream = c10::make_intrusive<StreamWork>();
  PolledWork work(stream, milliseconds(60000));
  const absl::Status late = WaitFor(work, milliseconds(20));
  EXPECT_TRUE(absl::IsDeadlineExceeded(late)) << late;
  EXPECT_THAT(std::string(late.message()), HasSubstr("after 20 ms"));
  stream->End();
  EXPECT_TRUE(WaitFor(work).ok());
}

TEST(PolledWork, ItsOwnTimeoutHoldsWhereNoneIsGiven) {
  PolledWork work(c10::make_intrusive<StreamWork>(), milliseconds(20));
  EXPECT_TRUE(absl::IsDeadlineExceeded(WaitFor(work)));
}

TEST(PolledWork, LooksAtOthersMeanwhile) {
  PolledWork work(c10::make_intrusive<StreamWork>(), milliseconds(60000),
                  [] { throw std::runtime_error("rank 1 died"); });
  EXPECT_THAT(std::string(WaitFor(work).message()), HasSubstr("rank 1 died"));
}

// The work's own error says more than that another rank has failed, and comes a
// moment later.
TEST(PolledWork, PrefersTheWorksOwnError) {
  const auto stream = c10::make_intrusive<StreamWork>();
  PolledWork work(stream, milliseconds(60000), [&] {
    stream->EndAtLook(3, Error("deadlock"));
    throw std::runtime_error("another rank failed");
  });
  EXPECT_THAT(std::string(WaitFor(work).message()), HasSubstr("deadlock"));
}

}  // namespace
}  // namespace tandem::polled_work_test
