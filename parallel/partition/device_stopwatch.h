// Device stopwatch: how long a device takes for what it is given.

#ifndef TANDEM_PARALLEL_PARTITION_DEVICE_STOPWATCH_H_
#define TANDEM_PARALLEL_PARTITION_DEVICE_STOPWATCH_H_

#include <c10/core/Device.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <vector>

namespace tandem {

class DeviceStopwatch {
 public:
  explicit DeviceStopwatch(c10::Device device) : device_(device) { Lap(); }

  // Seconds since the last lap, when the device has done all of it.
  double Lap() {
    Await(device_);
    const auto now = std::chrono::steady_clock::now();
    const std::chrono::duration<double> lap = now - last_;
    last_ = now;
    return lap.count();
  }

  // Waits for what the device was given.
  static void Await(c10::Device device) {
    if (device.is_cpu()) return;
    c10::impl::VirtualGuardImpl(device.type())
        .synchronizeDevice(std::max<c10::DeviceIndex>(device.index(), 0));
  }

 private:
  c10::Device device_;
  std::chrono::steady_clock::time_point last_;
};

// The middle value, or the greater of the two in the middle. Requires a value.
inline double UpperMedian(std::vector<double> values) {
  const auto middle =
      values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace tandem

#endif  // TANDEM_PARALLEL_PARTITION_DEVICE_STOPWATCH_H_
