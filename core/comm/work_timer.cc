#include "core/comm/work_timer.h"

#include <c10/core/StreamGuard.h>

#include "absl/status/statusor.h"
#include "core/base/torch_status.h"

namespace tandem {

std::optional<DeviceMoment> WorkTimer::EndOf(c10d::Work& work,
                                             c10::Device device) {
  const absl::StatusOr<DeviceMoment> end = CatchTorchOr([&] {
    OwnStream& stream = streams_[device.index()];
    if (stream == nullptr) stream = TakeStream(device);
    const c10::StreamGuard guard(*stream);
    work.synchronize();
    return DeviceMoment::Now(device);
  });
  if (!end.ok()) return std::nullopt;
  return *end;
}

}  // namespace tandem
