#include "core/sim/imagined/link_meter.h"

#include <algorithm>
#include <array>
#include <mutex>

#include "core/sim/imagined/work_meter.h"
#include "core/sim/streams/limits.h"

namespace tandem {
namespace sim {
namespace {

struct Links {
  DeviceTraffic traffic;
  double free_at = 0;  // the end of its last collective, by its clock
};

struct Meter {
  std::mutex mutex;
  LinkSpeed speed;
  std::array<Links, kMostDevices> links;

  Links& Of(int device) { return links[static_cast<size_t>(device)]; }
};

Meter& TheMeter() {
  static auto* meter = new Meter;
  return *meter;
}

void Add(double bytes, double bytes_per_s, CountedTraffic* traffic) {
  traffic->bytes += bytes;
  traffic->seconds += bytes_per_s > 0 ? bytes / bytes_per_s : 0;
  ++traffic->calls;
}

// Under the meter's lock.
double ClockOf(int device) {
  const DeviceWork work = WorkOf(device);
  return work.forward.seconds + work.backward.seconds + work.rest.seconds +
         TheMeter().Of(device).traffic.waited;
}

}  // namespace

void SetLinkSpeed(const LinkSpeed& speed) {
  const std::lock_guard<std::mutex> lock(TheMeter().mutex);
  TheMeter().speed = speed;
}

void CountCopy(int device, double bytes) {
  Meter& meter = TheMeter();
  const std::lock_guard<std::mutex> lock(meter.mutex);
  Add(bytes, meter.speed.devices, &meter.Of(device).traffic.copies);
}

void CountMessage(int device, double bytes) {
  Meter& meter = TheMeter();
  const std::lock_guard<std::mutex> lock(meter.mutex);
  Add(bytes, meter.speed.ranks, &meter.Of(device).traffic.messages);
}

double StartCollective(int device, double bytes) {
  Meter& meter = TheMeter();
  const std::lock_guard<std::mutex> lock(meter.mutex);
  Links& links = meter.Of(device);
  CountedTraffic& collectives = links.traffic.collectives;
  const double before = collectives.seconds;
  Add(bytes, meter.speed.ranks, &collectives);
  links.free_at =
      std::max(links.free_at, ClockOf(device)) + (collectives.seconds - before);
  return links.free_at;
}

void AwaitCollective(int device, double end) {
  Meter& meter = TheMeter();
  const std::lock_guard<std::mutex> lock(meter.mutex);
  meter.Of(device).traffic.waited += std::max(0.0, end - ClockOf(device));
}

DeviceTraffic TrafficOf(int device) {
  Meter& meter = TheMeter();
  const std::lock_guard<std::mutex> lock(meter.mutex);
  return meter.Of(device).traffic;
}

void ResetTraffic(int device) {
  Meter& meter = TheMeter();
  const std::lock_guard<std::mutex> lock(meter.mutex);
  meter.Of(device) = {};
}

}  // namespace sim
}  // namespace tandem
