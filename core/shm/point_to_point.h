// Point-to-point messages between ranks that share memory.

#ifndef TANDEM_CORE_SHM_POINT_TO_POINT_H_
#define TANDEM_CORE_SHM_POINT_TO_POINT_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "core/shm/collectives.h"
#include "core/shm/memory/connect.h"
#include "core/shm/memory/mailbox.h"
#include "core/shm/memory/segment.h"

namespace tandem {

// Sends and receives of one rank. A message of any size goes through a ring of
// bytes for each pair of ranks; it is matched by its sender and tag, in the
// order of sending. A receive that meets a message of another size fails.
//
// A send that fits into the ring is done at once. What is not done is carried
// on by the thread that waits for any message of this rank, else by a thread
// that starts with the first such message: messages move while ranks compute,
// and no order of sends and receives locks up. Thread-safe.
class ShmPointToPoint {
 public:
  using Deadline = std::chrono::steady_clock::time_point;

  // Both must outlive this.
  ShmPointToPoint(ShmSegment* segment, int rank,
                  const ShmConnections* connections);
  ~ShmPointToPoint();
  ShmPointToPoint(const ShmPointToPoint&) = delete;
  ShmPointToPoint& operator=(const ShmPointToPoint&) = delete;

  // `keep` is held until the message has gone or come.
  std::shared_ptr<ShmMessage> Send(ConstBytes data, int to, int64_t tag,
                                   std::shared_ptr<void> keep);
  std::shared_ptr<ShmMessage> Receive(MutableBytes data, int from, int64_t tag,
                                      std::shared_ptr<void> keep);

  // Until `deadline`. DeadlineExceeded and Unavailable name the other rank; the
  // group is of no more use after them. When `patience` is over before that:
  // DeadlineExceeded too, and the message goes on.
  absl::Status Wait(ShmMessage& message, Deadline deadline,
                    Deadline patience = Deadline::max());
  // Is it done? Looks after the mail first.
  bool Test(ShmMessage& message);
  // The Wait() for it that is under way, or else the next one, returns
  // Cancelled. The message goes on, and can be waited for again.
  void CancelWait(ShmMessage& message);

  // Ends the thread; nothing moves from now on.
  void Close();

 private:
  void Post(const std::shared_ptr<ShmMessage>& message, bool send);
  // Takes memory for the ring to `peer`, the first time.
  absl::Status ReserveRing(int peer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Moves what can be moved; was it anything?
  bool Progress() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool TryFinish(ShmMessage& message);
  // Until it is done or `until`.
  bool Await(ShmMessage& message, Deadline until);
  void GiveUp(const ShmMessage& message);
  void Tell(int peer);
  absl::Status Check(const ShmMessage& message) const;
  void Fail(const absl::Status& status);
  void StartThread() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Run();

  ShmSegment* const segment_;
  const int rank_;
  const ShmConnections* const connections_;
  absl::Mutex mutex_;
  std::vector<ShmOutbox> outboxes_ ABSL_GUARDED_BY(mutex_);
  std::vector<bool> has_ring_ ABSL_GUARDED_BY(mutex_);  // towards a rank
  std::vector<ShmInbox> inboxes_ ABSL_GUARDED_BY(mutex_);
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem

#endif  // TANDEM_CORE_SHM_POINT_TO_POINT_H_
