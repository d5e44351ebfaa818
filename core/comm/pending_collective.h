// Pending collective: one that was started and may still run (c10d's Work, with
// a Status).

#ifndef TANDEM_CORE_COMM_PENDING_COLLECTIVE_H_
#define TANDEM_CORE_COMM_PENDING_COLLECTIVE_H_

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/device/device_moment.h"

namespace tandem {

// What a collective is for: "bucket 1 (fc2.weight, fc2.bias) of step 4". Called
// only when something is to be said, by the thread that starts or waits, and at
// the latest before Wait() returns; of what streams run, when it is started. A
// copy of one that captures two pointers or less costs nothing. May be null.
using CollectivePurpose = std::function<std::string()>;

// The tensors of the collective must not be touched before Wait() has returned;
// the communicator that started it must outlive that. One that was never waited
// for goes on in the background. Movable; not thread-safe.
class PendingCollective {
 public:
  using Clock = std::chrono::steady_clock;

  // One that has nothing to do, such as in a group of one rank.
  PendingCollective() = default;
  // Has ended when all of them have; its error is that of the first with one.
  static PendingCollective AllOf(std::vector<PendingCollective> all);

  // The same, whose end is that of `after`: the first Wait() calls it, on its
  // thread, unless there was an error.
  PendingCollective Then(std::function<absl::Status()> after) &&;

  // Waits for the end, at most the group's timeout; the error is that of the
  // blocking collective. A second call gives the same answer. On streams: what
  // the calling thread's stream is given from then on does.
  absl::Status Wait();

  // When it was started, and when its last byte had come (if the backend does
  // not tell: when Wait() returned); the second is known after Wait(), or when
  // a stream has come to its end, by the device's clock. Epoch for one that had
  // nothing to do, or has not ended. For traces.
  Clock::time_point started() const { return started_; }
  Clock::time_point ended() const;

 private:
  friend class CollectiveRunner;

  // Set by whoever completes the work, on any thread. Ticks of Clock.
  using EndTime = std::shared_ptr<std::atomic<Clock::rep>>;

  std::function<absl::Status()> wait_;  // null: nothing to wait for
  absl::Status result_;
  Clock::time_point started_;
  EndTime end_time_;
  std::optional<DeviceMoment> end_moment_;  // goes before `end_time_`
};

}  // namespace tandem

#endif  // TANDEM_CORE_COMM_PENDING_COLLECTIVE_H_
