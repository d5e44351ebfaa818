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
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

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

// Asks, from a thread of its own and every `limit` at least, whether a device
// has been computing the same action for as long.
//
// Begin and End from one thread.
class HangWatch {
 public:
  // Told once a device and action of a step, on the watch's thread, and before
  // End returns.
  using OnHang = std::function<void(size_t device, int action)>;

  // `progress`, by device, must outlive the watch.
  HangWatch(std::vector<const DeviceProgress*> progress,
            std::chrono::milliseconds limit);
  ~HangWatch();
  HangWatch(const HangWatch&) = delete;
  HangWatch& operator=(const HangWatch&) = delete;

  // A step begins, or ends.
  void Begin(OnHang on_hang);
  void End();

 private:
  void Loop();
  void Check() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::vector<const DeviceProgress*> progress_;
  const std::chrono::milliseconds limit_;
  absl::Mutex mutex_;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  OnHang on_hang_ ABSL_GUARDED_BY(mutex_);  // null: between steps
  std::set<std::pair<size_t, int>> told_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;  // last: it uses the others
};

// Logs `message` and ends the process at once with exit code 1: what runs in
// its threads cannot be waited for.
[[noreturn]] void EndProcess(const std::string& message);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_PIPELINE_WATCH_H_
