// Moment of a device's work: when its stream comes to a place, on the host's
// clock (torch.cuda.Event with enable_timing). Where the host works itself, on
// the CPU, it is when the host comes there.

#ifndef TANDEM_CORE_DEVICE_DEVICE_MOMENT_H_
#define TANDEM_CORE_DEVICE_DEVICE_MOMENT_H_

#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include <chrono>
#include <memory>

#include "core/device/device_clock.h"

namespace tandem {

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
