// Settings: what a contender may choose for itself.

#ifndef TANDEM_TOOLS_BENCH_CASE_SETTING_H_
#define TANDEM_TOOLS_BENCH_CASE_SETTING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem {

// The model as it is made, in one piece, and so the batch.
struct Setting {
  std::string schedule = "1f1b";  // by the name that the contender knows it by
  int chunks = 1;                 // stages a device
  int microbatches = 1;
  std::string cut = "uniform";  // "uniform" (by layers) or "time" (measured)
  // Microbatches whose weight gradients are computed together; ours alone.
  int together = 1;
  // The same bits in every layout; ours alone.
  bool reproducible = false;
  // How replicas average gradients: of ours "static_graph", "find_unused" or
  // "ddp" (as it is usually) for DistributedDataParallel, else the hybrid does;
  // a peer's are those of tools/bench/peers/averaging.py.
  std::string recipe = {};

  bool operator==(const Setting& other) const;
};

// "1f1b 1 4 time", "1f1b 1 4 time 2" for two together, "1f1b 1 4 time
// reproducible", with a recipe "1f1b 1 4 time flat": what the command `use`
// takes (tools/bench/rank/server.h).
std::string ToString(const Setting& setting);
// Reads one of our own settings.
absl::StatusOr<Setting> ParseSetting(const std::string& text);

// Each number of microbatches from `counts` that `samples` has, cut either way;
// with each number of chunks.
std::vector<Setting> SettingsOf(const std::string& schedule,
                                const std::vector<int>& chunks,
                                const std::vector<int>& counts,
                                int64_t samples);
// These settings, and each with all of a step's weight gradients computed
// together.
std::vector<Setting> WithWeightsTogether(std::vector<Setting> settings);

std::vector<Setting> WithRecipe(std::vector<Setting> settings,
                                const std::string& recipe);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_CASE_SETTING_H_
