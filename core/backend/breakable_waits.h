// Breakable waits: what threads of one rank wait for in a group, so that all
// waits end together when a connection has broken.

#ifndef TANDEM_CORE_BACKEND_BREAKABLE_WAITS_H_
#define TANDEM_CORE_BACKEND_BREAKABLE_WAITS_H_

#include <chrono>
#include <set>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tandem {

// Thread-safe.
class BreakableWaits {
 public:
  // One that no setting of the host's clock moves.
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;

  // In place of a rank of the group: all the others.
  static constexpr int kAll = -1;

  // For as long as a thread waits: for a message from or to `peer`, or, where
  // `message` is null and the peer kAll, for a collective.
  class Waiting {
   public:
    Waiting(BreakableWaits* waits, c10d::Work* message, int peer);
    ~Waiting();
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    friend class BreakableWaits;

    bool Due(Time now);
    bool IsBroken(Time now) const;

    BreakableWaits* const waits_;
    c10d::Work* const message_;
    const int peer_;
    const Time since_;
    Clock::duration next_ = std::chrono::seconds(1);
    Time doubted_ = Time::max();
  };

  // Aborts the messages that are waited for; a collective's wait sees it. The
  // first reason counts.
  void Break(const std::string& reason);
  bool IsBroken();
  [[noreturn]] void ThrowBroken();

  // Peers of waits that have lasted a second, or half as long again as when
  // they were due last.
  std::set<int> PeersDue(Time now);
  // The connection to `peer` (kAll: one of them) was seen broken, so that waits
  // for it will not end, or are about to: the peer may have done its part.
  void Doubt(int peer, const std::string& reason);
  // Whether a collective is waited for that was doubted.
  bool HasDoubtedCollective();
  // The others are at work on theirs: those doubts count from now on. A message
  // has nobody but its peer.
  void RenewDoubts(Time now);
  // The reason, once a wait should have ended since; else empty.
  std::string Confirmed(Time now);

  // `ended` is read and written under this object's lock.
  void MarkEnded(bool* ended);
  // Whether it has ended, in time and before a break, or a moment after one.
  bool AwaitEnd(const bool* ended, absl::Duration timeout);

  // Waits for `interval`; false once there is a break or Stop was called.
  bool Pause(absl::Duration interval);
  void Stop();

 private:
  absl::Mutex mutex_;
  std::set<Waiting*> waits_ ABSL_GUARDED_BY(mutex_);
  std::string broken_ ABSL_GUARDED_BY(mutex_);  // why; empty: it is not
  std::string doubt_ ABSL_GUARDED_BY(mutex_);   // the last reason for one
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace tandem

#endif  // TANDEM_CORE_BACKEND_BREAKABLE_WAITS_H_
