#include "core/device/device_moment.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <mutex>
#include <unordered_map>

#include "core/device/capture_mark.h"

namespace tandem {
namespace {

using Clock = DeviceMoment::Clock;

// A device's event of which the host's time is known.
struct Origin {
  c10::Event event;
  Clock::time_point time;
};

std::unique_ptr<c10::Event> RecordOn(c10::Device device) {
  auto event = std::make_unique<c10::Event>(device.type(),
                                            c10::EventFlag::BACKEND_DEFAULT);
  event->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  return event;
}

// Made once, and kept: devices stay until the process ends.
const Origin& OriginOf(c10::Device device) {
  static auto* mutex = new std::mutex;
  static auto* origins =
      new std::unordered_map<c10::Device, std::unique_ptr<Origin>>;
  const std::lock_guard<std::mutex> lock(*mutex);
  std::unique_ptr<Origin>& origin = (*origins)[device];
  if (origin == nullptr) {
    std::unique_ptr<c10::Event> event = RecordOn(device);
    event->synchronize();
    origin.reset(new Origin{std::move(*event), Clock::now()});
  }
  return *origin;
}

}  // namespace

DeviceMoment DeviceMoment::Now(c10::Device device) {
  DeviceMoment moment;
  if (device.type() != c10::DeviceType::CPU && !WorkIsCaptured(device)) {
    OriginOf(device);
    moment.event_ = RecordOn(device);
  }
  moment.issued_ = Clock::now();
  return moment;
}

bool DeviceMoment::has_come() const {
  return event_ == nullptr || event_->query();
}

Clock::time_point DeviceMoment::time() const {
  if (event_ == nullptr) return issued_;
  if (!event_->query()) event_->synchronize();
  const Origin& origin = OriginOf(event_->device());
  const std::chrono::duration<double, std::milli> since(
      origin.event.elapsedTime(*event_));
  return origin.time + std::chrono::duration_cast<Clock::duration>(since);
}

}  // namespace tandem
