#include "core/comm/pending_collective.h"

#include <utility>

namespace tandem {

PendingCollective PendingCollective::AllOf(std::vector<PendingCollective> all) {
  if (all.empty()) return {};
  if (all.size() == 1) return std::move(all.front());
  PendingCollective whole;
  whole.started_ = all.front().started_;
  whole.end_time_ = all.back().end_time_;
  whole.end_moment_ = all.back().end_moment_;
  const auto parts =
      std::make_shared<std::vector<PendingCollective>>(std::move(all));
  whole.wait_ = [parts] {
    absl::Status first;
    for (PendingCollective& each : *parts) first.Update(each.Wait());
    return first;
  };
  return whole;
}

PendingCollective PendingCollective::Then(
    std::function<absl::Status()> after) && {
  wait_ = [first = std::move(wait_), after = std::move(after)] {
    const absl::Status ended = first ? first() : absl::OkStatus();
    return ended.ok() ? after() : ended;
  };
  return std::move(*this);
}

absl::Status PendingCollective::Wait() {
  if (wait_) {
    result_ = wait_();
    wait_ = nullptr;
  }
  return result_;
}

PendingCollective::Clock::time_point PendingCollective::ended() const {
  if (end_moment_.has_value()) {
    return end_moment_->has_come() ? end_moment_->time() : Clock::time_point();
  }
  if (end_time_ == nullptr) return started_;
  return Clock::time_point(Clock::duration(end_time_->load()));
}

}  // namespace tandem
