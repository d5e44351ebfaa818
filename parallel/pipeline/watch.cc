#include "parallel/pipeline/watch.h"

#include <glog/logging.h>

#include <algorithm>
#include <cstdlib>

#include "absl/time/time.h"

namespace tandem {

std::optional<int> DeviceProgress::RunningSinceBefore(
    Clock::time_point time) const {
  const int action = action_.load(std::memory_order_acquire);
  const Clock::time_point since{
      Clock::duration(since_.load(std::memory_order_relaxed))};
  if (action == kNone || since > time) return std::nullopt;
  return action;
}

HangWatch::HangWatch(std::vector<const DeviceProgress*> progress,
                     std::chrono::milliseconds limit)
    : progress_(std::move(progress)),
      limit_(limit),
      thread_([this] { Loop(); }) {}

HangWatch::~HangWatch() {
  {
    absl::MutexLock lock(&mutex_);
    ending_ = true;
  }
  thread_.join();
}

void HangWatch::Begin(OnHang on_hang) {
  absl::MutexLock lock(&mutex_);
  on_hang_ = std::move(on_hang);
}

void HangWatch::End() {
  absl::MutexLock lock(&mutex_);
  on_hang_ = nullptr;
  told_.clear();
}

void HangWatch::Loop() {
  // A hang shows between one limit and one and a quarter after it began.
  const absl::Duration interval =
      absl::FromChrono(std::max(limit_ / 4, std::chrono::milliseconds(1)));
  absl::MutexLock lock(&mutex_);
  while (!mutex_.AwaitWithTimeout(absl::Condition(&ending_), interval)) {
    if (on_hang_) Check();
  }
}

void HangWatch::Check() {
  const auto since = DeviceProgress::Clock::now() - limit_;
  for (size_t device = 0; device < progress_.size(); ++device) {
    const auto action = progress_[device]->RunningSinceBefore(since);
    if (!action.has_value()) continue;
    if (told_.emplace(device, *action).second) on_hang_(device, *action);
  }
}

void EndProcess(const std::string& message) {
  LOG(ERROR) << message;
  google::FlushLogFiles(google::GLOG_INFO);
  std::_Exit(EXIT_FAILURE);
}

}  // namespace tandem
