#include "core/device/device_moment.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <mutex>
#include <unordered_map>

#include "core/device/own_stream.h"

namespace tandem {

namespace {

using Clock = DeviceMoment::Clock;

std::unique_ptr<c10::Event> RecordOn(c10::Stream stream) {
  auto event = std::make_unique<c10::Event>(stream.device_type(),
                                            c10::EventFlag::BACKEND_DEFAULT);
  event->record(stream);
  return event;
}

// A device's clock, and the stream of its events, where nothing else waits.
struct ClockAndStream {
  explicit ClockAndStream(c10::Device device) : stream(TakeStream(device)) {}

  const OwnStream stream;
  DeviceClock<c10::Event> clock;
};

// Made once, and kept: devices stay until the process ends.
ClockAndStream& DeviceClockAndStream(c10::Device device) {
  static auto* mutex = new std::mutex;
  static auto* clocks =
      new std::unordered_map<c10::Device, std::unique_ptr<ClockAndStream>>;
  const std::lock_guard<std::mutex> lock(*mutex);
  std::unique_ptr<ClockAndStream>& entry = (*clocks)[device];
  if (entry == nullptr) entry = std::make_unique<ClockAndStream>(device);
  return *entry;
}

}  // namespace

DeviceMoment DeviceMoment::Now(c10::Device device) {
  DeviceMoment moment;
  if (device.type() != c10::DeviceType::CPU) {
    ClockAndStream& of_device = DeviceClockAndStream(device);
    moment.origin_ =
        of_device.clock.OriginNow([&] { return RecordOn(*of_device.stream); });
    moment.event_ =
        RecordOn(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
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
  return origin_->TimeOf(*event_);
}

}  // namespace tandem
