// Breakable works: waits for another backend's works that end when a
// connection of the group has broken, whatever the backend knows of it.

#ifndef TANDEM_CORE_BACKEND_BREAKABLE_WORKS_H_
#define TANDEM_CORE_BACKEND_BREAKABLE_WORKS_H_

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tandem {

// Breakable waits: what threads of one rank wait for in a group, so that all
// waits end together when a connection has broken.

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

// Gloo (LibTorch 2.15) gives the error of a broken connection to what waits in
// line for it, but not to what was half sent or half received, nor to what it
// tried to send in the moment in which the other side went: these wait for
// their timeout. Here a thread of the group asks `probe`, a second after a wait
// began and then each time it has lasted half as long again, whether its
// connection is broken, and ends the group's waits if one that needs it is not
// over a moment later. Costs nothing while waits are short.
//
// A rank that has done its part may go before the others are done. A message
// needs its own peer alone; a collective's connections are all looked at, and
// it is given longer, and for as long as bytes move between the others: their
// last phase may be long, on a slow network.
//
// Thread-safe.
class BreakableWorks {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  // `probe` throws once the connection to `peer` (BreakableWaits::kAll: one of
  // all) is broken. Called on a thread of this object's until the destructor
  // has returned, and not after Break; so is `have_moved`: whether bytes went
  // over the group's connections since it was called last. `keep_backend` is
  // called when a wait for a collective was ended which may still run: its
  // backend must live on, for its destructor would wait for it.
  BreakableWorks(std::function<void(int peer)> probe,
                 std::function<bool()> have_moved,
                 std::function<void()> keep_backend);
  ~BreakableWorks();
  BreakableWorks(const BreakableWorks&) = delete;
  BreakableWorks& operator=(const BreakableWorks&) = delete;

  // A work whose wait() is that of `message`, from or to `peer`, and throws
  // when a connection breaks. `message` runs as long as it is waited for, and
  // abort() ends that.
  WorkPtr OfMessage(WorkPtr message, int peer);
  // The same of a work with a future, which runs on a thread of its backend.
  WorkPtr OfCollective(WorkPtr collective);

  // Ends the waits: what has not ended by then, or a moment later, throws
  // `reason`. The first reason counts.
  void Break(const std::string& reason);

 private:
  void Run();

  const std::function<void(int)> probe_;
  const std::function<bool()> have_moved_;
  const std::function<void()> keep_backend_;
  // Works may be waited for after this object has gone.
  const std::shared_ptr<BreakableWaits> waits_;
  std::thread thread_;  // starts last
};

}  // namespace tandem

#endif  // TANDEM_CORE_BACKEND_BREAKABLE_WORKS_H_
