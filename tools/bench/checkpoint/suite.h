// The suite "checkpoint": saves and loads beside torch.distributed.checkpoint.

#ifndef TANDEM_TOOLS_BENCH_CHECKPOINT_SUITE_H_
#define TANDEM_TOOLS_BENCH_CHECKPOINT_SUITE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/bench/checkpoint/run.h"
#include "tools/bench/suite/suite.h"

namespace tandem {

// "cases", by state and operation: milliseconds and MB a second (medians) on
// each side, and peer / ours with the least and the greatest of the rounds.
std::vector<Table> CheckpointTables(
    const std::vector<CheckpointResult>& results);

absl::StatusOr<SuiteReport> RunCheckpointSuite(const BenchFlags& flags,
                                               const std::string& folder);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_CHECKPOINT_SUITE_H_
