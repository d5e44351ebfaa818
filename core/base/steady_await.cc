#include "core/base/steady_await.h"

#include <chrono>

namespace tandem {

bool AwaitSteadily(absl::Mutex& mutex, const absl::Condition& condition,
                   absl::Duration timeout) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  absl::Duration left = timeout;
  while (!mutex.AwaitWithTimeout(condition, left)) {
    left = timeout - absl::FromChrono(Clock::now() - begin);
    if (left <= absl::ZeroDuration()) return false;
  }
  return true;
}

}  // namespace tandem
