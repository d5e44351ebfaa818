// The sides of the pipeline's and the hybrid's benchmark, as processes.

#ifndef TANDEM_TOOLS_BENCH_PIPELINE_SIDES_H_
#define TANDEM_TOOLS_BENCH_PIPELINE_SIDES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/bench/bench_case.h"
#include "tools/bench/bench_layout.h"
#include "tools/bench/pipeline_contender.h"

namespace tandem {

// Names of sides, and what they begin with.
inline constexpr char kOurs[] = "tandem";
inline constexpr char kPipelining[] = "pipelining";
inline constexpr char kSingle[] = "single";

struct PipelineBenchOptions {
  // "pipelining": torch.distributed.pipelining, a process for each device;
  // "single": one process, which trains the model in one piece.
  std::vector<std::string> peers = {"pipelining", "single"};
  absl::StatusOr<std::string> python;  // or why there is none
  BenchLayout layout = {1, 1, 2};  // ours; a peer has a rank for each device
  int threads = 1;
  int rounds = 7;
  int64_t steps = 0;   // in a round; 0: as the case says
  std::string folder;  // scratch, an existing one: names are of one side each
};

// Writes the weights and batches from which all sides begin.
absl::Status WriteInputs(const std::string& model,
                         const PipelineBenchOptions& options);

// Starts a side, by what its name begins with: "tandem", "single", or else
// "pipelining". One that cannot be started says why in its status().
PipelineContender StartContender(const std::string& name,
                                 const BenchCase& bench,
                                 const PipelineBenchOptions& options);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_PIPELINE_SIDES_H_
