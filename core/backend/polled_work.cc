#include "core/backend/polled_work.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <thread>
#include <utility>

namespace tandem {
namespace {

using std::chrono::microseconds;

// Short works are seen at once, long ones cost nothing.
constexpr microseconds kFirstPause(20);
constexpr microseconds kLongestPause(5000);
constexpr microseconds kLookPause(500000);
constexpr std::chrono::seconds kGrace(1);

}  // namespace

PolledWork::PolledWork(c10::intrusive_ptr<c10d::Work> work,
                       std::chrono::milliseconds timeout,
                       std::function<void()> look)
    : work_(std::move(work)), timeout_(timeout), look_(std::move(look)) {}

bool PolledWork::wait(std::chrono::milliseconds timeout) {
  const auto patience = timeout == kNoTimeout ? timeout_ : timeout;
  if (AwaitEnd(Clock::now() + patience, look_)) return true;
  TORCH_CHECK_WITH(DistBackendError, false, "timed out after ",
                   patience.count(), " ms on the stream");
}

bool PolledWork::AwaitEnd(Clock::time_point deadline,
                          const std::function<void()>& look) {
  Clock::time_point next_look = Clock::now() + kLookPause;
  microseconds pause = kFirstPause;
  while (!work_->isCompleted()) {
    if (Clock::now() > deadline) return false;
    if (look && Clock::now() > next_look) {
      Look(look);
      next_look = Clock::now() + kLookPause;
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, kLongestPause);
  }
  if (const std::exception_ptr error = work_->exception()) {
    std::rethrow_exception(error);
  }
  return true;
}

void PolledWork::Look(const std::function<void()>& look) {
  try {
    look();
  } catch (...) {
    // What the work says itself tells more; and it may just be ending.
    if (!AwaitEnd(Clock::now() + kGrace, nullptr)) throw;
  }
}

}  // namespace tandem
