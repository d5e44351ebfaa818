#include "parallel/pipeline/watch.h"

#include <glog/logging.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <utility>

namespace tandem {

std::optional<int> DeviceProgress::RunningSinceBefore(
    Clock::time_point time) const {
  const int action = action_.load(std::memory_order_acquire);
  const Clock::time_point since{
      Clock::duration(since_.load(std::memory_order_relaxed))};
  if (action == kNone || since > time) return std::nullopt;
  return action;
}

absl::Status AwaitDevices(
    std::vector<std::future<absl::Status>> running,
    const std::vector<const DeviceProgress*>& progress,
    std::chrono::milliseconds limit,
    const std::function<void(size_t device, int action)>& on_hang) {
  using Clock = DeviceProgress::Clock;
  // A hang shows between one limit and one and a quarter after it began.
  const auto interval = std::max(limit / 4, std::chrono::milliseconds(1));
  std::set<std::pair<size_t, int>> told;
  absl::Status result;
  for (std::future<absl::Status>& each : running) {
    while (each.wait_for(interval) == std::future_status::timeout) {
      for (size_t device = 0; device < progress.size(); ++device) {
        const auto action =
            progress[device]->RunningSinceBefore(Clock::now() - limit);
        if (!action.has_value()) continue;
        if (told.emplace(device, *action).second) on_hang(device, *action);
      }
    }
    result.Update(each.get());
  }
  return result;
}

void EndProcess(const std::string& message) {
  LOG(ERROR) << message;
  google::FlushLogFiles(google::GLOG_INFO);
  std::_Exit(EXIT_FAILURE);
}

}  // namespace tandem
