// Link meter of imagined devices: what they would send each other, and how long
// that takes, while they compute on: bytes by bandwidth, without latency.

#ifndef TANDEM_CORE_SIM_IMAGINED_LINK_METER_H_
#define TANDEM_CORE_SIM_IMAGINED_LINK_METER_H_

#include <cstdint>

namespace tandem {
namespace sim {

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

// Of one device so far: what has come to it from other devices of its rank and
// from other ranks, and what went over its link in collectives.
struct DeviceTraffic {
  CountedTraffic copies;
  CountedTraffic messages;
  CountedTraffic collectives;
  // Seconds for which it had nothing to do until a collective had ended.
  double waited = 0;
};

// Of all devices. To be set before the first call.
void SetLinkSpeed(const LinkSpeed& speed);

// All that follows is thread-safe.
void CountCopy(int device, double bytes);
void CountMessage(int device, double bytes);

// A device's collectives run one after the other, beside what it computes, from
// the moment at which they are started: by its own clock, which goes on with
// its work (work_meter.h) and its waits. Returns when it ends, by that clock.
double StartCollective(int device, double bytes);
// What the device does next comes after that.
void AwaitCollective(int device, double end);

DeviceTraffic TrafficOf(int device);
// Its clock begins anew; to be called with ResetWork, when nothing runs.
void ResetTraffic(int device);

}  // namespace sim
}  // namespace tandem

#endif  // TANDEM_CORE_SIM_IMAGINED_LINK_METER_H_
