// Flags stand apart from whatever includes glog, whose own flags have some of
// the same names.

#include "absl/flags/flag.h"
#include "tools/trainer/rehearsal/rehearsal_settings.h"

ABSL_FLAG(bool, fake_weights, false,
          "Predict what training would take: with --device=sim devices have "
          "no memory and compute nothing, so that a model of any size can be "
          "cut and rehearsed here. Prints each device's memory, by category, "
          "and the time of a step.");
ABSL_FLAG(double, sim_memory_bandwidth, 0,
          "With --fake_weights: memory bandwidth of a device, in 10^9 bytes a "
          "second (an H100: 3350); an operator takes as long as its memory "
          "traffic, or as --peak_tflops, whichever is longer. 0: no limit.");
ABSL_FLAG(double, sim_link_bandwidth, 0,
          "With --fake_weights: bandwidth between devices of one rank, in 10^9 "
          "bytes a second (an H100's NVLink: 450). 0: no limit.");
ABSL_FLAG(double, sim_network_bandwidth, 0,
          "With --fake_weights: bandwidth to devices of other ranks, for "
          "messages and collectives, in 10^9 bytes a second (400 Gb/s are "
          "50). 0: no limit.");

namespace tandem {

FlagGroup RehearsalFlags() {
  return {"Rehearsal",
          {{"fake_weights", true},
           {"sim_memory_bandwidth"},
           {"sim_link_bandwidth"},
           {"sim_network_bandwidth"}}};
}

RehearsalSettings RehearsalSettingsFromFlags() {
  RehearsalSettings settings;
  settings.fake_weights = absl::GetFlag(FLAGS_fake_weights);
  settings.memory_bandwidth = absl::GetFlag(FLAGS_sim_memory_bandwidth) * 1e9;
  settings.link_bandwidth = absl::GetFlag(FLAGS_sim_link_bandwidth) * 1e9;
  settings.network_bandwidth = absl::GetFlag(FLAGS_sim_network_bandwidth) * 1e9;
  return settings;
}

}  // namespace tandem
