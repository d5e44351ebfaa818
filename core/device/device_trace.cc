#include "core/device/device_trace.h"

#include <c10/util/Exception.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace tandem {

void DeviceTraceScope::End() const {
  TraceEvent event;
  event.track = std::string(track_);
  event.name = std::string(name_);
  // A device that fails tells so to whoever waits for its work.
  try {
    Trace::OfProcess().AddLater([event = std::move(event), start = *start_,
                                 end = DeviceMoment::Now(device_)]() mutable {
      try {
        event.start = start.time();
        event.end = end.time();
      } catch (const c10::Error&) {
        event.start = start.issued();
        event.end = end.issued();
      }
      return std::move(event);
    });
  } catch (const c10::Error&) {
  }
}

std::string DeviceTrack(int device) { return absl::StrCat("device ", device); }

}  // namespace tandem
