// Ranks of a job share their fate: when one has failed in one group, what
// others wait for in other groups ends, too.

#ifndef TANDEM_CORE_HEALTH_JOB_WATCH_H_
#define TANDEM_CORE_HEALTH_JOB_WATCH_H_

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <map>
#include <optional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "core/base/call_within.h"
#include "core/health/group_member.h"

namespace tandem {

// Watch of a process over its job, for all of its groups. While a thread waits
// in one of them it looks, twice a second, whether a rank of the job has noted
// a failure on the store (core/health/group_failures.h), and then breaks all
// groups off. So a rank that waits for one that waits for the one that died
// ends with them, and not by timeout. When the connection to the store has been
// lost for seconds and somebody still waits, its server has died, and it does
// the same; and when an interrupt that presses asked this rank to stop longer
// ago than InterruptGrace() (core/program/interrupt.h): a thread that waits,
// for a stream of a device, too, does not see it. One that leaves time
// (SIGUSR1: the job makes room for a node, or its scheduler ends it later)
// breaks nothing off.
//
// Thread-safe.
class JobWatch {
 public:
  using BreakOff = std::function<void(const std::string& why)>;

  // `member`: in the group of all ranks.
  explicit JobWatch(GroupMember member);
  ~JobWatch();
  JobWatch(const JobWatch&) = delete;
  JobWatch& operator=(const JobWatch&) = delete;

  // `break_off` is called once at most, on a thread of the watch, which it must
  // not wait for, or before this returns where all has been broken off before.
  // After Remove has returned it is not called, nor does it run still. What
  // takes long holds up those behind it, and neither Add nor other groups'
  // Remove.
  int Add(BreakOff break_off);
  void Remove(int id);
  // Whether groups are being broken off, or were.
  bool HasFailed() const;

  // For as long as a thread waits.
  class Waiting {
   public:
    explicit Waiting(JobWatch* watch);  // null: nobody looks
    ~Waiting();
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    JobWatch* const watch_;
  };

 private:
  using Answer = absl::StatusOr<std::string>;

  void Run();
  void AbortAll(const std::string& why);
  // What the store says, if it has said it by now.
  std::optional<Answer> Ask();
  // Why to break off; empty: there is no reason.
  std::string ReasonToEnd(const std::optional<Answer>& answer);
  std::string ReasonOfInterrupt();

  const GroupMember member_;
  std::atomic<int> waiting_{0};
  mutable absl::Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  int next_id_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<int, BreakOff> groups_ ABSL_GUARDED_BY(mutex_);
  int breaking_ ABSL_GUARDED_BY(mutex_) = -1;  // the one that is being aborted
  std::string why_ ABSL_GUARDED_BY(mutex_);    // all was broken off; else empty
  CallThread store_thread_;  // the thread's own, like the next
  std::future<Answer> asked_;
  int times_lost_ = 0;
  std::optional<std::chrono::steady_clock::time_point>
      interrupted_at_;  // a wait
  std::thread thread_;  // starts last
};

}  // namespace tandem

#endif  // TANDEM_CORE_HEALTH_JOB_WATCH_H_
