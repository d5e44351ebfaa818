#include "core/device/device_trace.h"

#include <c10/util/Exception.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace tandem {

void AddDeviceSlice(absl::string_view track, absl::string_view name,
                    const DeviceMoment& start, const DeviceMoment& end) {
  TraceEvent event;
  event.track = std::string(track);
  event.name = std::string(name);
  Trace::OfProcess().AddLater([event = std::move(event), start, end]() mutable {
    // A device that fails tells so to whoever waits for its work.
    try {
      event.start = start.time();
      event.end = end.time();
    } catch (const c10::Error&) {
      event.start = start.issued();
      event.end = end.issued();
    }
    return std::move(event);
  });
}

void DeviceTraceScope::End() const {
  // The same.
  try {
    AddDeviceSlice(track_, name_, *start_, DeviceMoment::Now(device_));
  } catch (const c10::Error&) {
  }
}

std::string DeviceTrack(int device) { return absl::StrCat("device ", device); }

}  // namespace tandem
