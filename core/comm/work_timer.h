// Work timer: when a work that streams run will have ended, by the device's
// clock.

#ifndef TANDEM_CORE_COMM_WORK_TIMER_H_
#define TANDEM_CORE_COMM_WORK_TIMER_H_

#include <c10/core/Device.h>

#include <map>
#include <optional>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "core/device/device_moment.h"
#include "core/device/own_stream.h"

namespace tandem {

// A thread that polls a work sees its end milliseconds late, and behind those
// that were started before; the timer does not. Not thread-safe.
class WorkTimer {
 public:
  // The end of a work that orders streams when it is waited for, as NCCL's do:
  // a stream of the timer's own waits for it, and for nothing else. Nothing
  // where the work has failed.
  //
  // What c10d keeps alive until a stream has waited for the work (tensors that
  // go in, and do not come out) it keeps no longer.
  std::optional<DeviceMoment> EndOf(c10d::Work& work, c10::Device device);

 private:
  std::map<c10::DeviceIndex, OwnStream> streams_;
};

}  // namespace tandem

#endif  // TANDEM_CORE_COMM_WORK_TIMER_H_
