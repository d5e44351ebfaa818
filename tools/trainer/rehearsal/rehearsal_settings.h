// Settings of a rehearsal without values: its flags, beside those of the job
// that is rehearsed.

#ifndef TANDEM_TOOLS_TRAINER_REHEARSAL_REHEARSAL_SETTINGS_H_
#define TANDEM_TOOLS_TRAINER_REHEARSAL_REHEARSAL_SETTINGS_H_

#include "absl/status/status.h"
#include "core/program/flag_guide.h"
#include "core/sim/streams/streams.h"
#include "tools/trainer/settings/options.h"

namespace tandem {

// The last simulated device stands for the host, where layers are made.
constexpr int kMostRehearsedDevices = sim::kMostDevices - 1;

struct RehearsalSettings {
  bool fake_weights = false;
  // Bytes a second; 0: without end. Of a device's memory, between devices of a
  // rank, and between a device and those of other ranks.
  double memory_bandwidth = 0;
  double link_bandwidth = 0;
  double network_bandwidth = 0;
};

// These flags as a group, "Rehearsal".
FlagGroup RehearsalFlags();

// What the flags say, once they are parsed.
RehearsalSettings RehearsalSettingsFromFlags();

// Whether what was given goes together. InvalidArgument names the flag that
// does not.
absl::Status CheckRehearsal(const RehearsalSettings& settings,
                            const TrainOptions& options);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_REHEARSAL_REHEARSAL_SETTINGS_H_
