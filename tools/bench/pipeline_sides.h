// The sides of the pipeline's benchmark, as processes.

#ifndef TANDEM_TOOLS_BENCH_PIPELINE_SIDES_H_
#define TANDEM_TOOLS_BENCH_PIPELINE_SIDES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/bench/bench_case.h"
#include "tools/bench/pipeline_contender.h"

namespace tandem {

// Names of sides.
inline constexpr char kOurs[] = "tandem";
inline constexpr char kPipelining[] = "pipelining";
inline constexpr char kSingle[] = "single";

struct PipelineBenchOptions {
  // "pipelining": torch.distributed.pipelining, a process for each device;
  // "single": one process, which trains the model in one piece.
  std::vector<std::string> peers = {"pipelining", "single"};
  absl::StatusOr<std::string> python;  // or why there is none
  int devices = 2;
  int threads = 1;
  int rounds = 7;
  int64_t steps = 0;   // in a round; 0: as the case says
  std::string folder;  // scratch, an existing one
};

// Writes the weights and batches from which all sides begin.
absl::Status WriteInputs(const std::string& model,
                         const PipelineBenchOptions& options);

// Starts a side: ours, a peer, or under a name of its own one more
// "pipelining". One that cannot be started says why in its status().
PipelineContender StartContender(const std::string& name,
                                 const BenchCase& bench,
                                 const PipelineBenchOptions& options);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_PIPELINE_SIDES_H_
