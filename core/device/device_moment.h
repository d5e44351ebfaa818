// Moment of a device's work: when its stream comes to a place, on the host's
// clock (torch.cuda.Event with enable_timing). Where the host works itself, on
// the CPU, it is when the host comes there.

#ifndef TANDEM_CORE_DEVICE_DEVICE_MOMENT_H_
#define TANDEM_CORE_DEVICE_DEVICE_MOMENT_H_

#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include <chrono>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/synchronization/mutex.h"

namespace tandem {

// Device clock: when a device's events came, on the host's clock.

// A device tells the time between two events alone, and CUDA as a float of
// milliseconds: to 4 us of a minute, to 8 ms of a day. So the event that others
// are compared with is a new one each minute, whose own time is told from the
// one before.
//
// `Event`: c10::Event, or what has its query, synchronize and elapsedTime.
// Thread-safe.
template <typename Event>
class DeviceClock {
 public:
  using Clock = std::chrono::steady_clock;

  // An event of which the host's time is known.
  struct Origin {
    std::unique_ptr<Event> event;
    Clock::time_point time;

    // When an event came, which must have come.
    Clock::time_point TimeOf(const Event& other) const {
      const std::chrono::duration<double, std::milli> since(
          event->elapsedTime(other));
      return time + std::chrono::duration_cast<Clock::duration>(since);
    }
  };

  // For an event of about now. `record` makes one that comes as soon as the
  // device can: the first is waited for, to bring both clocks together, none of
  // the others.
  std::shared_ptr<const Origin> OriginNow(
      absl::FunctionRef<std::unique_ptr<Event>()> record,
      Clock::time_point now = Clock::now()) {
    absl::MutexLock lock(&mutex_);
    if (origin_ == nullptr) {
      std::unique_ptr<Event> event = record();
      event->synchronize();
      Become({std::move(event), Clock::now()}, now);
    }
    if (next_ == nullptr && now - since_ >= kLife) next_ = record();
    if (next_ != nullptr && next_->query()) {
      const Clock::time_point time = origin_->TimeOf(*next_);
      Become({std::move(next_), time}, now);
    }
    return origin_;
  }

 private:
  static constexpr std::chrono::minutes kLife{1};

  void Become(Origin origin, Clock::time_point now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    origin_ = std::make_shared<const Origin>(std::move(origin));
    since_ = now;
  }

  absl::Mutex mutex_;
  std::shared_ptr<const Origin> origin_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<Event> next_ ABSL_GUARDED_BY(mutex_);  // null: not yet
  Clock::time_point since_ ABSL_GUARDED_BY(mutex_);
};

// Copies are one moment. Thread-safe but for assignment.
class DeviceMoment {
 public:
  using Clock = std::chrono::steady_clock;

  // The clock's epoch.
  DeviceMoment() = default;

  // When the calling thread's stream of the device will have done what it has
  // been given so far. The first one of a device waits until an idle stream of
  // it answers, to bring its clock and the host's together; others cost an
  // event.
  static DeviceMoment Now(c10::Device device);

  // When the host was there.
  Clock::time_point issued() const { return issued_; }
  // Has it come? Never waits.
  bool has_come() const;
  // When it came; waits for it.
  Clock::time_point time() const;

 private:
  Clock::time_point issued_;
  std::shared_ptr<c10::Event> event_;  // null: the host's own
  std::shared_ptr<const DeviceClock<c10::Event>::Origin> origin_;
};

}  // namespace tandem

#endif  // TANDEM_CORE_DEVICE_DEVICE_MOMENT_H_
