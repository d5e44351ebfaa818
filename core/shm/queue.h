// Queue of collectives that a rank has issued and not finished, and the threads
// that run them.

#ifndef TANDEM_CORE_SHM_QUEUE_H_
#define TANDEM_CORE_SHM_QUEUE_H_

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "core/shm/collectives.h"
#include "core/shm/memory/connect.h"
#include "core/shm/memory/rounds.h"
#include "core/shm/memory/segment.h"

namespace tandem {

// A collective that was issued.
class ShmTask {
 public:
  // Is its end known? Waiters are let go a little later, when all callbacks
  // have been called.
  bool done() const { return done_.load(std::memory_order_acquire); }
  // The status of a task that is done.
  const absl::Status& status() const { return status_; }

 private:
  friend class ShmQueue;

  ShmCollectivePtr collective_;
  std::shared_ptr<void> keep_;  // what must live as long as it runs
  std::chrono::milliseconds timeout_{0};
  bool begun_ = false;
  std::optional<ShmDeadline> deadline_;  // known when it is its turn
  std::vector<std::function<void()>> on_done_;
  absl::Status status_;
  std::atomic<bool> done_{false};
  std::atomic<bool> told_{false};  // have the callbacks been called?
  std::thread::id teller_;         // the thread that calls them
};

// Runs collectives one after the other in the order of Issue(). A long one is
// run by a thread of the queue, so that it overlaps what its issuer goes on to
// do. A short one is begun by its issuer, who copies it to where the others see
// it, and finished by the thread that waits for it: no other thread wakes up.
// (Should it not be waited for, a peer that needs this rank asks its worker.)
//
// After the first failure the group is of no more use: all that is queued fails
// with the same error, and the peers are told why. Thread-safe.
class ShmQueue {
 public:
  // Both must outlive this.
  ShmQueue(ShmSegment* segment, int rank, const ShmConnections* connections);
  ~ShmQueue();
  ShmQueue(const ShmQueue&) = delete;
  ShmQueue& operator=(const ShmQueue&) = delete;

  // `keep` is held until the collective is done; longer if it fails, for the
  // others may still write to its tensors. `timeout` counts from when it is its
  // turn.
  std::shared_ptr<ShmTask> Issue(ShmCollectivePtr collective,
                                 std::shared_ptr<void> keep,
                                 std::chrono::milliseconds timeout);

  // Waits, or does the work itself if nobody does. With a `timeout` above zero:
  // DeadlineExceeded when it is over and the task is not done; it goes on then.
  // (When all ranks have come to it, its end is waited for.)
  absl::Status Wait(ShmTask& task, std::chrono::milliseconds timeout);

  // Has the queue's thread run all that is queued.
  void WakeWorker();

  // Calls `callback` when the task is done: at once, or on the thread that
  // finishes it, before any Wait() returns.
  void OnDone(ShmTask& task, std::function<void()> callback);

  // Finishes what is queued, within its timeouts, and ends the thread; what is
  // issued from now on fails.
  void Close();

  // Gives up: what runs or is queued here fails, and so does what the others
  // wait for.
  void GiveUp(const std::string& reason);

 private:
  void Run();
  // Runs the first task to its end, unless the other ranks do not come to it
  // before `patience` is over: then it stays the first.
  void RunFront(bool in_background, ShmDeadline patience)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Nothing when the patience is over.
  std::optional<absl::Status> Execute(ShmTask& task, ShmDeadline patience);
  void Complete(ShmTask& task, const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // May who waits for the task be let go?
  static bool Over(const ShmTask& task);
  // Whoever has failed ends all tasks.
  bool CanRun() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !running_ && failure_.ok();
  }
  void WaitForChange(ShmDeadline patience)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Fail(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  ShmSegment* const segment_;
  const int rank_;
  ShmRounds rounds_;  // of whoever runs, or holds the mutex while nobody does
  absl::Mutex mutex_;
  absl::CondVar changed_;
  bool running_ ABSL_GUARDED_BY(mutex_) = false;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<std::shared_ptr<ShmTask>> tasks_ ABSL_GUARDED_BY(mutex_);
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<void>> kept_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace tandem

#endif  // TANDEM_CORE_SHM_QUEUE_H_
