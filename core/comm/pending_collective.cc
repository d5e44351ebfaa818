#include "core/comm/pending_collective.h"

#include <utility>

namespace tandem {

absl::Status PendingCollective::Wait() {
  if (wait_) {
    result_ = wait_();
    wait_ = nullptr;
  }
  return result_;
}

PendingCollective::Clock::time_point PendingCollective::ended() const {
  if (end_time_ == nullptr) return started_;
  return Clock::time_point(Clock::duration(end_time_->load()));
}

}  // namespace tandem
