// Cases: a workload in a layout of processes and devices, and the settings
// among which each side chooses.

#ifndef TANDEM_TOOLS_BENCH_CASE_CASE_H_
#define TANDEM_TOOLS_BENCH_CASE_CASE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/bench/case/workload.h"

namespace tandem {

// The recipe with which replicas share parameters, on both sides.
inline constexpr char kFsdpRecipe[] = "fsdp";
// The recipe with which the ranks of a replica share each layer, and the one
// with which they also divide by tokens what stands between a layer's parts
// (sequence parallelism). PyTorch's recipes begin in the same way, and may have
// more words (tools/bench/peers/tensor.py).
inline constexpr char kTensorRecipe[] = "tensor";
inline constexpr char kTensorSequenceRecipe[] = "tensor_sequence";

// Whether a recipe is one of these.
bool SharesLayers(const std::string& recipe);

// A choice of a contender: by default the model as it is made, in one piece,
// and so the batch.
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
  // "ddp" (as it is usually) for DistributedDataParallel, kFsdpRecipe where
  // they share parameters, else the hybrid does; a peer's are those of
  // tools/bench/peers/averaging.py. Or it is one of SharesLayers.
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
std::vector<Setting> SettingChoices(const std::string& schedule,
                                    const std::vector<int>& chunks,
                                    const std::vector<int>& counts,
                                    int64_t samples);
// These settings, and each with all of a step's weight gradients computed
// together.
std::vector<Setting> WithWeightsTogether(std::vector<Setting> settings);

std::vector<Setting> WithRecipe(std::vector<Setting> settings,
                                const std::string& recipe);

// Data x pipe.
struct Layout {
  int replicas = 1;
  int pipe = 1;     // ranks of one replica
  int devices = 1;  // of one rank: cores, a thread each

  int ranks() const { return replicas * pipe; }
  int devices_of_replica() const { return pipe * devices; }

  // The same with a process for each device, as the peers have it.
  Layout OverRanks() const { return {replicas, pipe * devices, 1}; }
};

struct Case {
  // MODEL, MODEL/SCHEDULE or MODEL/LAYOUT, and ":bf16" if it is that.
  std::string name;
  Workload workload;
  Layout layout;               // tandem's
  std::vector<Setting> ours;   // tandem's
  std::vector<Setting> peers;  // those of the peer that has several
};

// The cases of `all` with these names, in the order of `all`; "MODEL" stands
// for all of a model's. All of them for an empty list. InvalidArgument for an
// unknown name lists those that are known.
absl::StatusOr<std::vector<Case>> CasesNamed(
    const std::vector<Case>& all, const std::vector<std::string>& names);

// Each in each of these dtypes ("fp32", "bf16"), those of one model together.
// InvalidArgument for another.
absl::StatusOr<std::vector<Case>> InDtypes(
    const std::vector<Case>& cases, const std::vector<std::string>& dtypes);

// Groups of cases that follow each other and have the same model and dtype,
// which share processes or files.
std::vector<std::vector<Case>> ByModel(const std::vector<Case>& cases);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_CASE_CASE_H_
