// Which devices a job runs on: the flags as a value.

#ifndef TANDEM_TOOLS_TRAINER_SETTINGS_DEVICE_SETTINGS_H_
#define TANDEM_TOOLS_TRAINER_SETTINGS_DEVICE_SETTINGS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace tandem {

struct DeviceSettings {
  std::string device = "cpu";  // cpu, cuda or sim
  int64_t devices_per_rank = 1;
  std::string cut;  // of parallel/balance/cut.h; empty: by parameters
  // Of simulated devices alone.
  std::string device_memory;  // of core/base/byte_size.h; empty: no limit
  bool sim_async = false;
  int64_t sim_delay_us = 0;
  uint64_t sim_delay_seed = 0;
};

// Each by itself and together; the error names the flag.
absl::Status Validate(const DeviceSettings& settings);

// Every option as (flag name, text).
std::vector<std::pair<std::string, std::string>> Describe(
    const DeviceSettings& settings);

// Of the flags, which device_settings_flags.cc defines; not checked.
DeviceSettings DeviceSettingsFromFlags();

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_SETTINGS_DEVICE_SETTINGS_H_
