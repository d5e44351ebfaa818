#include "tools/trainer/job/devices.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/byte_size.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/device/determinism.h"
#include "core/device/device.h"
#include "core/memory/device_memory.h"
#include "core/sim/sim.h"
#include "core/sim/streams/streams.h"

namespace tandem {
namespace {

absl::Status MakeSimulated(const DeviceSettings& settings,
                           const Launch& launch) {
  SimOptions sim;
  const int64_t wanted = settings.share_devices ? 1
                                                : launch.local_world_size *
                                                      settings.devices_per_rank;
  sim.devices = static_cast<int>(std::min<int64_t>(wanted, sim::kMostDevices));
  if (!settings.device_memory.empty()) {
    TANDEM_ASSIGN_OR_RETURN(sim.memory, ParseByteSize(settings.device_memory));
  }
  sim.async = settings.sim_async;
  sim.most_delay_us = static_cast<int>(settings.sim_delay_us);
  sim.delay_seed = settings.sim_delay_seed;
  return EnableSim(sim);
}

}  // namespace

absl::Status MakeImaginedDevices() {
  SimOptions imagined;
  imagined.devices = sim::kMostDevices;
  imagined.imagined = true;
  return EnableSim(imagined);
}

absl::StatusOr<std::vector<c10::Device>> PrepareDevices(
    const TrainOptions& options, const Launch& launch) {
  const DeviceSettings& settings = options.devices;
  if (settings.device == "cuda") {
    TANDEM_RETURN_IF_ERROR(
        SetGpuNumerics({options.pipeline.reproducible, settings.cudnn_benchmark,
                        settings.allow_tf32}));
  }
  if (settings.device == "sim") {
    TANDEM_RETURN_IF_ERROR(options.dry_run ? MakeImaginedDevices()
                                           : MakeSimulated(settings, launch));
  }
  TANDEM_ASSIGN_OR_RETURN(const c10::DeviceType type,
                          ParseDeviceType(settings.device));
  DeviceRequest request;
  request.local_rank = launch.local_rank;
  request.local_world_size = launch.local_world_size;
  request.devices_per_rank = static_cast<int>(settings.devices_per_rank);
  request.launcher = launch.launcher;
  request.shared = settings.share_devices;
  const auto devices = DevicesOf(request, type);
  if (!devices.ok()) {
    return Annotate(devices.status(),
                    absl::StrCat("--device=", settings.device));
  }
  SetCurrentDevice(devices->front());
  if (type == c10::DeviceType::CUDA) RecordGpuMemory();
  return devices;
}

absl::StatusOr<std::vector<std::pair<std::string, std::string>>> PeakMemory(
    const std::vector<c10::Device>& devices, Communicator& world) {
  std::vector<std::pair<std::string, std::string>> all;
  if (devices.front().is_cpu()) return all;
  std::string mine;
  std::set<std::string> told;  // places may share a device
  for (const c10::Device& device : devices) {
    const std::optional<DeviceMemory> memory = MemoryOf(device);
    if (!memory.has_value() || !told.insert(device.str()).second) continue;
    absl::StrAppend(&mine, device.str(), "\t", DescribePeak(*memory), "\n");
  }
  TANDEM_ASSIGN_OR_RETURN(
      const std::vector<std::string> texts,
      world.AllGatherString(mine, [] { return "peak memory"; }));
  std::set<std::string> names;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    for (const auto line :
         absl::StrSplit(texts[rank], '\n', absl::SkipEmpty())) {
      std::pair<std::string, std::string> entry =
          absl::StrSplit(line, absl::MaxSplits('\t', 1));
      if (!names.insert(entry.first).second) {
        absl::StrAppend(&entry.first, " of rank ", rank);
      }
      all.push_back(std::move(entry));
    }
  }
  return all;
}

}  // namespace tandem
