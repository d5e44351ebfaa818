#include "core/health/job_watch.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "core/base/torch_status.h"
#include "core/health/job_notes.h"
#include "core/program/interrupt.h"
#include "core/store/server.h"

namespace tandem {
namespace {

constexpr absl::Duration kInterval = absl::Milliseconds(500);
// What a store that answers needs.
constexpr std::chrono::milliseconds kAnswerTime(200);
// A job may be at its end, with its store gone and a wait that is over: so
// often it is asked again.
constexpr int kTimesLost = 4;

}  // namespace

JobWatch::JobWatch(GroupMember member)
    : member_(std::move(member)), thread_([this] { Run(); }) {}

JobWatch::~JobWatch() {
  {
    absl::MutexLock lock(&mutex_);
    stopped_ = true;
  }
  thread_.join();
}

int JobWatch::Add(BreakOff break_off) {
  std::string why;
  int id = 0;
  {
    absl::MutexLock lock(&mutex_);
    id = next_id_++;
    why = why_;
    if (why.empty()) groups_[id] = std::move(break_off);
  }
  if (!why.empty()) break_off(why);
  return id;
}

void JobWatch::Remove(int id) {
  absl::MutexLock lock(&mutex_);
  groups_.erase(id);
  const auto is_over = [this, id] {
    mutex_.AssertHeld();
    return breaking_ != id;
  };
  mutex_.Await(absl::Condition(&is_over));
}

bool JobWatch::HasFailed() const {
  absl::MutexLock lock(&mutex_);
  return !why_.empty();
}

// Without the lock, for a group's backends may take their time.
void JobWatch::AbortAll(const std::string& why) {
  for (;;) {
    BreakOff break_off;
    {
      absl::MutexLock lock(&mutex_);
      breaking_ = -1;
      if (groups_.empty()) return;
      breaking_ = groups_.begin()->first;
      break_off = std::move(groups_.begin()->second);
      groups_.erase(groups_.begin());
    }
    break_off(why);
  }
}

JobWatch::Waiting::Waiting(JobWatch* watch) : watch_(watch) {
  if (watch_ != nullptr) ++watch_->waiting_;
}

JobWatch::Waiting::~Waiting() {
  if (watch_ != nullptr) --watch_->waiting_;
}

// On a thread of its own, for a store whose server is frozen says nothing: it
// is not asked again before it has answered.
std::optional<JobWatch::Answer> JobWatch::Ask() {
  if (!asked_.valid()) {
    asked_ = store_thread_.Start<std::string>(
        [member = member_] { return FailureInJob(member); });
  }
  if (asked_.wait_for(kAnswerTime) != std::future_status::ready) {
    return std::nullopt;
  }
  return asked_.get();
}

std::string JobWatch::ReasonToEnd(const std::optional<Answer>& answer) {
  if (!answer.has_value()) return "";
  if (answer->ok()) {
    times_lost_ = 0;
    return **answer;
  }
  if (!absl::IsUnavailable(answer->status())) return "";
  if (++times_lost_ < kTimesLost) return "";
  return DescribeSilence(member_.store, answer->status());
}

std::string JobWatch::ReasonOfInterrupt() {
  if (!IsInterruptPressing()) return "";
  // The steady clock, which nobody sets: a grace time lasts as long as it says.
  const auto now = std::chrono::steady_clock::now();
  if (!interrupted_at_.has_value()) interrupted_at_ = now;
  // Meanwhile ranks may agree on where to stop, and save.
  const absl::Duration grace = InterruptGrace();
  if (absl::FromChrono(now - *interrupted_at_) < grace) return "";
  NoteInterruptedWait();
  return absl::StrCat(InterruptError().message(), ", and after ",
                      absl::FormatDuration(grace), " still waiting");
}

void JobWatch::Run() {
  std::string why;
  while (why.empty()) {
    {
      absl::MutexLock lock(&mutex_);
      if (mutex_.AwaitWithTimeout(absl::Condition(&stopped_), kInterval)) {
        return;
      }
    }
    if (waiting_ == 0) continue;
    why = ReasonToEnd(Ask());
    if (!why.empty()) {
      why = absl::StrCat("the job has failed: ", why);
    } else {
      why = ReasonOfInterrupt();
    }
  }
  {
    absl::MutexLock lock(&mutex_);
    why_ = why;
  }
  AbortAll(why);
}

}  // namespace tandem
