// Flags stand apart from whatever includes glog, whose own flags have some of
// the same names.

#include <cstdint>
#include <string>

#include "absl/flags/flag.h"
#include "tools/trainer/settings/device_settings.h"

ABSL_FLAG(std::string, device, "cpu",
          "Kind of device to run on: cpu, cuda, or sim: simulated devices in "
          "the host's memory, to rehearse what runs on several GPUs.");
ABSL_FLAG(int64_t, devices_per_rank, 1,
          "Devices of each rank. With several the model is cut, and its parts "
          "lie on one each; rank r of a host has devices r * N to r * N + N - "
          "1.");
ABSL_FLAG(std::string, cut, "",
          "Where to cut the model for --devices_per_rank: the layers, by name "
          "or number from 0, with which the second part, the third, ... begin "
          "(layer3,fc). Another name of --balance=LAYER,...; empty: as "
          "--balance says.");
ABSL_FLAG(std::string, device_memory, "",
          "Memory of each simulated device (80GiB, 512MiB): more than that is "
          "out of memory. Empty: as much as the host has.");
ABSL_FLAG(bool, sim_async, false,
          "Simulated devices queue their work on streams, as GPUs do: what "
          "does not wait for another stream gets wrong values.");
ABSL_FLAG(int64_t, sim_delay_us, 0,
          "With --sim_async: hold each piece of work up for a random time of "
          "so many microseconds at most.");
ABSL_FLAG(uint64_t, sim_delay_seed, 0, "Seed of --sim_delay_us.");

namespace tandem {

DeviceSettings DeviceSettingsFromFlags() {
  DeviceSettings settings;
  settings.device = absl::GetFlag(FLAGS_device);
  settings.devices_per_rank = absl::GetFlag(FLAGS_devices_per_rank);
  settings.cut = absl::GetFlag(FLAGS_cut);
  settings.device_memory = absl::GetFlag(FLAGS_device_memory);
  settings.sim_async = absl::GetFlag(FLAGS_sim_async);
  settings.sim_delay_us = absl::GetFlag(FLAGS_sim_delay_us);
  settings.sim_delay_seed = absl::GetFlag(FLAGS_sim_delay_seed);
  return settings;
}

}  // namespace tandem
