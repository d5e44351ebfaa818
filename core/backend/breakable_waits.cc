#include "core/backend/breakable_waits.h"

#include <c10/util/Exception.h>

#include <algorithm>

#include "absl/algorithm/container.h"
#include "core/base/steady_await.h"
#include "core/base/torch_status.h"

namespace tandem {
namespace {

// What a message needs to end whose peer has sent, or taken, all and gone.
constexpr std::chrono::milliseconds kLastBytes(500);
// What the others need for theirs of a collective when one has done its part,
// after the last bytes that they sent each other.
constexpr std::chrono::milliseconds kOthersPart(4000);
// What a collective needs that ends because of the same break.
constexpr absl::Duration kGrace = absl::Seconds(1);

}  // namespace

BreakableWaits::Waiting::Waiting(BreakableWaits* waits, c10d::Work* message,
                                 int peer)
    : waits_(waits), message_(message), peer_(peer), since_(Clock::now()) {
  absl::MutexLock lock(&waits_->mutex_);
  waits_->waits_.insert(this);
}

BreakableWaits::Waiting::~Waiting() {
  absl::MutexLock lock(&waits_->mutex_);
  waits_->waits_.erase(this);
}

bool BreakableWaits::Waiting::Due(Time now) {
  if (now - since_ < next_) return false;
  next_ = std::max(next_, now - since_) * 3 / 2;
  return true;
}

bool BreakableWaits::Waiting::IsBroken(Time now) const {
  return doubted_ != Time::max() &&
         now - doubted_ >= (message_ != nullptr ? kLastBytes : kOthersPart);
}

void BreakableWaits::Break(const std::string& reason) {
  absl::MutexLock lock(&mutex_);
  if (!broken_.empty()) return;
  broken_ = reason.empty() ? "the connection was given up" : reason;
  for (Waiting* const wait : waits_) {
    if (wait->message_ == nullptr) continue;
    CatchTorch([&] { wait->message_->abort(); }).IgnoreError();
  }
}

bool BreakableWaits::IsBroken() {
  absl::MutexLock lock(&mutex_);
  return !broken_.empty();
}

void BreakableWaits::ThrowBroken() {
  absl::MutexLock lock(&mutex_);
  C10_THROW_ERROR(DistNetworkError, broken_);
}

std::set<int> BreakableWaits::PeersDue(Time now) {
  absl::MutexLock lock(&mutex_);
  std::set<int> peers;
  for (Waiting* const wait : waits_) {
    if (wait->Due(now)) peers.insert(wait->peer_);
  }
  return peers;
}

void BreakableWaits::Doubt(int peer, const std::string& reason) {
  absl::MutexLock lock(&mutex_);
  doubt_ = reason;
  const Time now = Clock::now();
  for (Waiting* const wait : waits_) {
    if (wait->peer_ == peer) wait->doubted_ = std::min(wait->doubted_, now);
  }
}

bool BreakableWaits::HasDoubtedCollective() {
  absl::MutexLock lock(&mutex_);
  return absl::c_any_of(waits_, [](const Waiting* wait) {
    return wait->message_ == nullptr && wait->doubted_ != Time::max();
  });
}

void BreakableWaits::RenewDoubts(Time now) {
  absl::MutexLock lock(&mutex_);
  for (Waiting* const wait : waits_) {
    if (wait->message_ == nullptr && wait->doubted_ != Time::max()) {
      wait->doubted_ = now;
    }
  }
}

std::string BreakableWaits::Confirmed(Time now) {
  absl::MutexLock lock(&mutex_);
  const bool confirmed = absl::c_any_of(
      waits_, [now](const Waiting* wait) { return wait->IsBroken(now); });
  return confirmed ? doubt_ : "";
}

void BreakableWaits::MarkEnded(bool* ended) {
  absl::MutexLock lock(&mutex_);
  *ended = true;
}

bool BreakableWaits::AwaitEnd(const bool* ended, absl::Duration timeout) {
  absl::MutexLock lock(&mutex_);
  const auto over = [this, ended] {
    mutex_.AssertHeld();
    return *ended || !broken_.empty();
  };
  AwaitSteadily(mutex_, absl::Condition(&over), timeout);
  if (!*ended && !broken_.empty()) {
    const auto ends = [ended] { return *ended; };
    AwaitSteadily(mutex_, absl::Condition(&ends), kGrace);
  }
  return *ended;
}

bool BreakableWaits::Pause(absl::Duration interval) {
  absl::MutexLock lock(&mutex_);
  const auto over = [this] {
    mutex_.AssertHeld();
    return stopped_ || !broken_.empty();
  };
  return !mutex_.AwaitWithTimeout(absl::Condition(&over), interval);
}

void BreakableWaits::Stop() {
  absl::MutexLock lock(&mutex_);
  stopped_ = true;
}

}  // namespace tandem
