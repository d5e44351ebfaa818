#include "core/sim/imagined/meters.h"

#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <array>
#include <mutex>

#include "core/device/memory_category.h"
#include "core/sim/streams/streams.h"

namespace tandem {
namespace sim {
namespace {

struct WorkMeter {
  std::mutex mutex;
  DeviceSpeed speed;
  std::array<DeviceWork, kMostDevices> work;
};

WorkMeter& TheWorkMeter() {
  static auto* meter = new WorkMeter;
  return *meter;
}

// Activations that are computed again count as backward.
CountedWork& Part(DeviceWork& work) {
  if (torch::autograd::get_current_graph_task_id() != -1) return work.backward;
  const bool is_forward =
      CurrentMemoryCategory() == MemoryCategory::kActivations;
  return is_forward ? work.forward : work.rest;
}

}  // namespace

double RooflineSeconds(const OperatorWork& work, const DeviceSpeed& speed) {
  const auto time = [](double amount, double per_s) {
    return per_s > 0 ? amount / per_s : 0;
  };
  return std::max(time(work.flops, speed.flops_per_s),
                  time(work.bytes, speed.bytes_per_s));
}

void SetDeviceSpeed(const DeviceSpeed& speed) {
  const std::lock_guard<std::mutex> lock(TheWorkMeter().mutex);
  TheWorkMeter().speed = speed;
}

void CountWork(int device, const OperatorWork& work) {
  const std::lock_guard<std::mutex> lock(TheWorkMeter().mutex);
  CountedWork& part = Part(TheWorkMeter().work[static_cast<size_t>(device)]);
  part.flops += work.flops;
  part.bytes += work.bytes;
  part.seconds += RooflineSeconds(work, TheWorkMeter().speed);
  ++part.calls;
}

DeviceWork TotalWork(int device) {
  const std::lock_guard<std::mutex> lock(TheWorkMeter().mutex);
  return TheWorkMeter().work[static_cast<size_t>(device)];
}

void ResetWork(int device) {
  const std::lock_guard<std::mutex> lock(TheWorkMeter().mutex);
  TheWorkMeter().work[static_cast<size_t>(device)] = {};
}

namespace {

struct Links {
  DeviceTraffic traffic;
  double free_at = 0;  // the end of its last collective, by its clock
};

struct LinkMeter {
  std::mutex mutex;
  LinkSpeed speed;
  std::array<Links, kMostDevices> links;

  Links& Of(int device) { return links[static_cast<size_t>(device)]; }
};

LinkMeter& TheLinkMeter() {
  static auto* meter = new LinkMeter;
  return *meter;
}

void Add(double bytes, double bytes_per_s, CountedTraffic* traffic) {
  traffic->bytes += bytes;
  traffic->seconds += bytes_per_s > 0 ? bytes / bytes_per_s : 0;
  ++traffic->calls;
}

// Under the meter's lock.
double DeviceTime(int device) {
  const DeviceWork work = TotalWork(device);
  return work.forward.seconds + work.backward.seconds + work.rest.seconds +
         TheLinkMeter().Of(device).traffic.waited;
}

}  // namespace

void SetLinkSpeed(const LinkSpeed& speed) {
  const std::lock_guard<std::mutex> lock(TheLinkMeter().mutex);
  TheLinkMeter().speed = speed;
}

void CountCopy(int device, double bytes) {
  LinkMeter& meter = TheLinkMeter();
  const std::lock_guard<std::mutex> lock(meter.mutex);
  Add(bytes, meter.speed.devices, &meter.Of(device).traffic.copies);
}

void CountMessage(int device, double bytes) {
  LinkMeter& meter = TheLinkMeter();
  const std::lock_guard<std::mutex> lock(meter.mutex);
  Add(bytes, meter.speed.ranks, &meter.Of(device).traffic.messages);
}

double StartCollective(int device, double bytes) {
  LinkMeter& meter = TheLinkMeter();
  const std::lock_guard<std::mutex> lock(meter.mutex);
  Links& links = meter.Of(device);
  CountedTraffic& collectives = links.traffic.collectives;
  const double before = collectives.seconds;
  Add(bytes, meter.speed.ranks, &collectives);
  links.free_at = std::max(links.free_at, DeviceTime(device)) +
                  (collectives.seconds - before);
  return links.free_at;
}

void AwaitCollective(int device, double end) {
  LinkMeter& meter = TheLinkMeter();
  const std::lock_guard<std::mutex> lock(meter.mutex);
  meter.Of(device).traffic.waited += std::max(0.0, end - DeviceTime(device));
}

DeviceTraffic ReadTraffic(int device) {
  LinkMeter& meter = TheLinkMeter();
  const std::lock_guard<std::mutex> lock(meter.mutex);
  return meter.Of(device).traffic;
}

void ResetTraffic(int device) {
  LinkMeter& meter = TheLinkMeter();
  const std::lock_guard<std::mutex> lock(meter.mutex);
  meter.Of(device) = {};
}

}  // namespace sim
}  // namespace tandem
