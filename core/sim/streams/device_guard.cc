#include "core/sim/streams/device_guard.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <chrono>
#include <memory>

#include "core/sim/streams/stream_queue.h"
#include "core/sim/streams/streams.h"

namespace tandem {
namespace sim {
namespace {

std::atomic<int> device_count{0};

thread_local int8_t current_device = 0;

c10::Device SimDeviceAt(int8_t index) {
  return c10::Device(c10::DeviceType::PrivateUse1, index);
}

int8_t DeviceIndex(c10::Device device) {
  return device.has_index() ? device.index() : CurrentDevice();
}

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return c10::DeviceType::PrivateUse1; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override {
    return SimDeviceAt(CurrentDevice());
  }
  void setDevice(c10::Device device) const override {
    SetCurrentDevice(DeviceIndex(device));
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    current_device = device.index();
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(DeviceCount());
  }

  c10::Stream getStream(c10::Device device) const override {
    return CurrentStream(DeviceIndex(device));
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return DefaultStream(DeviceIndex(device));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device,
                                      bool high_priority) const override {
    return PooledStream(DeviceIndex(device), high_priority);
  }
  c10::Stream getNewStream(c10::Device device,
                           int /*priority*/) const override {
    return PooledStream(DeviceIndex(device));
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return ExchangeStream(stream);
  }

  void record(void** event, const c10::Stream& stream,
              const c10::DeviceIndex /*device*/,
              const c10::EventFlag /*flag*/) const override {
    if (*event == nullptr) *event = new Event;
    RecordEvent(*static_cast<Event*>(*event), stream);
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event != nullptr) HoldStream(*static_cast<Event*>(event), stream);
  }
  bool queryEvent(void* event) const override {
    return event == nullptr || static_cast<Event*>(event)->Passed();
  }
  void synchronizeEvent(void* event) const override {
    CountHostWait("event");
    if (event != nullptr) static_cast<Event*>(event)->Wait();
  }
  // In a float, as CUDA has it.
  double elapsedTime(void* begin, void* end,
                     const c10::DeviceIndex /*device*/) const override {
    const auto at = [](void* event) {
      const auto mark = static_cast<Event*>(event)->mark();
      TORCH_CHECK(mark != nullptr, "an event has not been recorded");
      return mark->PassedAt();
    };
    using Milliseconds = std::chrono::duration<float, std::milli>;
    return Milliseconds(at(end) - at(begin)).count();
  }
  void destroyEvent(void* event,
                    const c10::DeviceIndex /*device*/) const noexcept override {
    delete static_cast<Event*>(event);
  }

  bool queryStream(const c10::Stream& stream) const override {
    return IsIdle(stream);
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    CountHostWait("stream");
    Synchronise(stream);
  }
  void synchronizeDevice(const c10::DeviceIndex device) const override {
    CountHostWait("device");
    SynchroniseDevice(device);
  }
  // What is queued holds the memory that it works on.
  void recordDataPtrOnStream(const c10::DataPtr&,
                             const c10::Stream&) const override {}
};

}  // namespace

int DeviceCount() { return device_count.load(std::memory_order_relaxed); }

void SetDeviceCount(int count) { device_count = count; }

int8_t CurrentDevice() { return current_device; }

void SetCurrentDevice(int device) {
  TORCH_CHECK(device >= 0 && device < DeviceCount(), "there is no sim:", device,
              ": simulated devices are sim:0 to sim:", DeviceCount() - 1);
  current_device = static_cast<int8_t>(device);
}

void RegisterDeviceGuard() {
  static const Guard guard;
  c10::impl::registerDeviceGuard(c10::DeviceType::PrivateUse1, &guard);
}

}  // namespace sim
}  // namespace tandem
