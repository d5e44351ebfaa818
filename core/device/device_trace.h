// Trace of a device's work: slices from one moment of it to another.

#ifndef TANDEM_CORE_DEVICE_DEVICE_TRACE_H_
#define TANDEM_CORE_DEVICE_DEVICE_TRACE_H_

#include <c10/core/Device.h>

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "core/device/device_moment.h"
#include "core/instrument/trace.h"

namespace tandem {

// Adds a slice of a device's to the trace of the process, when that is on, from
// one moment to the other; they need not have come.
void AddDeviceSlice(absl::string_view track, absl::string_view name,
                    const DeviceMoment& start, const DeviceMoment& end);

// Adds a slice to the trace of the process, when that is on: from when the
// calling thread's stream of the device comes to what it is given from here on,
// to when it has done what it was given until the end of the block. The texts
// must live as long. (torch::autograd::profiler::RecordFunction.)
class DeviceTraceScope {
 public:
  DeviceTraceScope(absl::string_view track, absl::string_view name,
                   c10::Device device)
      : track_(track), name_(name), device_(device) {
    if (Trace::OfProcess().is_on()) start_ = DeviceMoment::Now(device);
  }
  ~DeviceTraceScope() {
    if (start_.has_value()) End();
  }
  DeviceTraceScope(const DeviceTraceScope&) = delete;
  DeviceTraceScope& operator=(const DeviceTraceScope&) = delete;

 private:
  void End() const;

  const absl::string_view track_;
  const absl::string_view name_;
  const c10::Device device_;
  std::optional<DeviceMoment> start_;  // none: the trace is off
};

// The row of a schedule's device: "device 1".
std::string DeviceTrack(int device);

}  // namespace tandem

#endif  // TANDEM_CORE_DEVICE_DEVICE_TRACE_H_
