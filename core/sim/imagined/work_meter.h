// Work meter of imagined devices: what their operators would have to do, and
// how long that takes by the roofline model (Williams et al., 2009): the longer
// of computing and of moving bytes.

#ifndef TANDEM_CORE_SIM_IMAGINED_WORK_METER_H_
#define TANDEM_CORE_SIM_IMAGINED_WORK_METER_H_

#include <cstdint>

namespace tandem {
namespace sim {

// What a device can do; 0: without end.
struct DeviceSpeed {
  double flops_per_s = 0;
  double bytes_per_s = 0;
};

struct OperatorWork {
  double flops = 0;
  double bytes = 0;  // read and written
};

struct CountedWork {
  double flops = 0;
  double bytes = 0;
  double seconds = 0;
  int64_t calls = 0;
};

// Of one device so far, by what it was for: autograd's backward, what is
// computed as activations (core/device/memory_category.h) outside of it, and
// the rest: the optimizer's step, losses, copies.
struct DeviceWork {
  CountedWork forward;
  CountedWork backward;
  CountedWork rest;
};

double SecondsOf(const OperatorWork& work, const DeviceSpeed& speed);

// Of all devices. To be set before the first call.
void SetDeviceSpeed(const DeviceSpeed& speed);

// Of the calling thread, for the device. Thread-safe, as what follows.
void CountWork(int device, const OperatorWork& work);
DeviceWork WorkOf(int device);
void ResetWork(int device);

}  // namespace sim
}  // namespace tandem

#endif  // TANDEM_CORE_SIM_IMAGINED_WORK_METER_H_
