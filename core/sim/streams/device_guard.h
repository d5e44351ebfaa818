// Device guard: which simulated device, and which of its streams, a thread
// works on.

#ifndef TANDEM_CORE_SIM_STREAMS_DEVICE_GUARD_H_
#define TANDEM_CORE_SIM_STREAMS_DEVICE_GUARD_H_

#include <c10/core/Device.h>

#include <cstdint>

namespace tandem {
namespace sim {

// How many devices there are; set once, by EnableSim.
int DeviceCount();
void SetDeviceCount(int count);

// The calling thread's device; 0 at first. c10::Error for one there is not.
int8_t CurrentDevice();
void SetCurrentDevice(int device);

// Tells LibTorch of them: c10::DeviceGuard, c10::StreamGuard, c10::Event and
// the autograd engine, which has a thread for each device, go through this.
void RegisterDeviceGuard();

}  // namespace sim
}  // namespace tandem

#endif  // TANDEM_CORE_SIM_STREAMS_DEVICE_GUARD_H_
