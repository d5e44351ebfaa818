// Hang watch: where the devices of a pipeline are, and whether one hangs.
//
// A wait in a channel ends by its timeout. A layer that never returns cannot be
// stopped in C++: whoever watches can say where it is, and end the process.

#ifndef TANDEM_PARALLEL_PIPELINE_WATCH_H_
#define TANDEM_PARALLEL_PIPELINE_WATCH_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace tandem {

// What one device's thread is computing. It tells, others ask.
class DeviceProgress {
 public:
  using Clock = std::chrono::steady_clock;

  void Starts(int action, Clock::time_point now) {
    since_.store(now.time_since_epoch().count(), std::memory_order_relaxed);
    action_.store(action, std::memory_order_release);
  }
  void Ends() { action_.store(kNone, std::memory_order_release); }

  // The action (as numbered by who calls Starts) that has been computed since
  // before `time`, if one has.
  std::optional<int> RunningSinceBefore(Clock::time_point time) const;

 private:
  static constexpr int kNone = -1;
  std::atomic<int> action_{kNone};
  std::atomic<Clock::rep> since_{0};
};

// Waits for all of them. Every `limit`, at least, asks whether one device has
// been computing the same action for as long, and calls `on_hang` with its
// index and action, once for each. The first error is returned.
absl::Status AwaitDevices(
    std::vector<std::future<absl::Status>> running,
    const std::vector<const DeviceProgress*>& progress,
    std::chrono::milliseconds limit,
    const std::function<void(size_t device, int action)>& on_hang);

// Logs `message` and ends the process at once with exit code 1: what runs in
// its threads cannot be waited for.
[[noreturn]] void EndProcess(const std::string& message);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_PIPELINE_WATCH_H_
