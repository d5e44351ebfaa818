#include "core/sim/imagined/work_meter.h"

#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <array>
#include <mutex>

#include "core/device/memory_category.h"
#include "core/sim/streams/limits.h"

namespace tandem {
namespace sim {
namespace {

struct Meter {
  std::mutex mutex;
  DeviceSpeed speed;
  std::array<DeviceWork, kMostDevices> work;
};

Meter& TheMeter() {
  static auto* meter = new Meter;
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

double SecondsOf(const OperatorWork& work, const DeviceSpeed& speed) {
  const auto time = [](double amount, double per_s) {
    return per_s > 0 ? amount / per_s : 0;
  };
  return std::max(time(work.flops, speed.flops_per_s),
                  time(work.bytes, speed.bytes_per_s));
}

void SetDeviceSpeed(const DeviceSpeed& speed) {
  const std::lock_guard<std::mutex> lock(TheMeter().mutex);
  TheMeter().speed = speed;
}

void CountWork(int device, const OperatorWork& work) {
  const std::lock_guard<std::mutex> lock(TheMeter().mutex);
  CountedWork& part = Part(TheMeter().work[static_cast<size_t>(device)]);
  part.flops += work.flops;
  part.bytes += work.bytes;
  part.seconds += SecondsOf(work, TheMeter().speed);
  ++part.calls;
}

DeviceWork WorkOf(int device) {
  const std::lock_guard<std::mutex> lock(TheMeter().mutex);
  return TheMeter().work[static_cast<size_t>(device)];
}

void ResetWork(int device) {
  const std::lock_guard<std::mutex> lock(TheMeter().mutex);
  TheMeter().work[static_cast<size_t>(device)] = {};
}

}  // namespace sim
}  // namespace tandem
