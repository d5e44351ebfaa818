// What the pipeline's benchmark trains: models by name, each under each
// schedule, and the settings from which a side may choose.

#ifndef TANDEM_TOOLS_BENCH_PIPELINE_CASE_H_
#define TANDEM_TOOLS_BENCH_PIPELINE_CASE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/bench/bench_case.h"

namespace tandem {

// What a side chooses for itself.
struct PipelineSetting {
  std::string schedule;  // by the name that the side knows it by
  int chunks = 1;        // stages a device
  int microbatches = 1;
  std::string cut = "uniform";  // "uniform" (by layers) or "time" (measured)
  // Microbatches whose weight gradients are computed together; ours alone.
  int together = 1;
  // The same bits in every layout; ours alone.
  bool reproducible = false;
  // How a peer's replicas average gradients (tools/bench/peers/averaging.py).
  std::string recipe = {};

  bool operator==(const PipelineSetting& other) const;
};

// "1f1b 1 4 time", "1f1b 1 4 time 2" for two together, "1f1b 1 4 time
// reproducible", a peer's "1f1b 1 4 time flat": what the sides' command `use`
// takes.
std::string ToString(const PipelineSetting& setting);
// Of our own settings.
absl::StatusOr<PipelineSetting> ParsePipelineSetting(const std::string& text);

// Each number of microbatches from `counts` that `samples` has, cut either way;
// with each number of chunks.
std::vector<PipelineSetting> SettingsOf(const std::string& schedule,
                                        const std::vector<int>& chunks,
                                        const std::vector<int>& counts,
                                        int64_t samples);
// Those, and each with all of a step's weight gradients computed together.
std::vector<PipelineSetting> WithWeightsTogether(
    std::vector<PipelineSetting> settings);

struct PipelineCase {
  std::string name;  // MODEL/SCHEDULE
  BenchCase bench;   // `compared_steps` for each setting that is timed
  std::string schedule;
  std::vector<PipelineSetting> ours;
  // Of torch.distributed.pipelining's nearest schedule. Zero bubble has one
  // that works over Gloo (tools/bench/peers/pipeline_peer.py): it stands for
  // ZB-V too.
  std::vector<PipelineSetting> peers;
};

// The peer's schedules that are tried for themselves, because they have failed:
// by its names.
std::vector<std::string> DoubtfulPeerSchedules();
// Of such a schedule, the settings.
std::vector<PipelineSetting> DoubtfulSettings(const std::string& schedule,
                                              const BenchCase& bench);

// mlp_deep (batch 128), gpt_tiny (batch 8), resnet18 (3x64x64, batch 32), each
// under every schedule of parallel/schedule/schedules.h; with fused SGD.
const std::vector<PipelineCase>& PipelineCases();

// The cases of these names, in the order of PipelineCases; "MODEL" stands for
// all of a model's. All of them for an empty list. InvalidArgument for an
// unknown name.
absl::StatusOr<std::vector<PipelineCase>> PipelineCasesNamed(
    const std::vector<std::string>& names);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_PIPELINE_CASE_H_
