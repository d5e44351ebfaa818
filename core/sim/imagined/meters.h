// Meters of imagined devices: work and traffic that they would have, and the
// time that these would take.

#ifndef TANDEM_CORE_SIM_IMAGINED_METERS_H_
#define TANDEM_CORE_SIM_IMAGINED_METERS_H_

#include <cstdint>

namespace tandem {
namespace sim {

// Work meter of imagined devices: what their operators would have to do, and
// how long that takes by the roofline model (Williams et al., 2009): the longer
// of computing and of moving bytes.

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

// The work of one device so far, by what it was for: autograd's backward, what
// is computed as activations (core/device/memory_category.h) outside of it, and
// the rest: the optimizer's step, losses, copies.
struct DeviceWork {
  CountedWork forward;
  CountedWork backward;
  CountedWork rest;
};

double RooflineSeconds(const OperatorWork& work, const DeviceSpeed& speed);

// The speed of all devices. To be set before the first call.
void SetDeviceSpeed(const DeviceSpeed& speed);

// Counts work that the calling thread gives the device. Thread-safe, as what
// follows.
void CountWork(int device, const OperatorWork& work);
DeviceWork TotalWork(int device);
void ResetWork(int device);

// Link meter of imagined devices: what they would send each other, and how long
// that takes, while they compute on: bytes by bandwidth, without latency.

// Bytes a second, in each direction; 0: without end.
struct LinkSpeed {
  double devices = 0;  // between devices of one rank
  double ranks = 0;    // between a device and those of other ranks
};

struct CountedTraffic {
  double bytes = 0;
  double seconds = 0;
  int64_t calls = 0;
};

// The traffic of one device so far: what has come to it from other devices of
// its rank and from other ranks, and what went over its link in collectives.
struct DeviceTraffic {
  CountedTraffic copies;
  CountedTraffic messages;
  CountedTraffic collectives;
  // Seconds for which it had nothing to do until a collective had ended.
  double waited = 0;
};

// The speed of all links. To be set before the first call.
void SetLinkSpeed(const LinkSpeed& speed);

// All that follows is thread-safe.
void CountCopy(int device, double bytes);
void CountMessage(int device, double bytes);

// A device's collectives run one after the other, beside what it computes, from
// the moment at which they are started: by its own clock, which goes on with
// its work and its waits. Returns when it ends, by that clock.
double StartCollective(int device, double bytes);
// What the device does next comes after that.
void AwaitCollective(int device, double end);

DeviceTraffic ReadTraffic(int device);
// Its clock begins anew; to be called with ResetWork, when nothing runs.
void ResetTraffic(int device);

}  // namespace sim
}  // namespace tandem

#endif  // TANDEM_CORE_SIM_IMAGINED_METERS_H_
