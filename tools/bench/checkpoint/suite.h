// The suite "checkpoint": saves and loads beside torch.distributed.checkpoint.

#ifndef TANDEM_TOOLS_BENCH_CHECKPOINT_SUITE_H_
#define TANDEM_TOOLS_BENCH_CHECKPOINT_SUITE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/bench/suite/suite.h"

namespace tandem {

// What is saved: so many float32 tensors of so many numbers.
struct CheckpointState {
  std::string name;  // "many small tensors"
  int64_t tensors = 0;
  int64_t numbers = 0;
};

struct CheckpointBench {
  std::vector<CheckpointState> states;
  // Starts the peer (tools/bench/peers/checkpoints.py); what Side appends comes
  // behind it.
  std::vector<std::string> peer;
  std::string folder;  // an existing one, where both sides write
  int rounds = 5;
};

// Times by round, in milliseconds. A save ends when it is synced. A load checks
// all of its checksums here, and nothing there. A stall is what an asynchronous
// save takes of the loop: until the tensors may change again.
struct CheckpointResult {
  std::string state;
  std::string operation;  // "save", "load" or "stall"
  int64_t bytes = 0;
  std::vector<double> ours_ms;
  std::vector<double> peer_ms;
};

// What each side loads must be what was saved, before anything is timed:
// DataLoss if not. The first of each operation is not timed; who begins
// changes. The errors of checkpoints and of Side. Binds the calling thread to
// the peer's core.
absl::StatusOr<std::vector<CheckpointResult>> CompareCheckpoints(
    const CheckpointBench& bench);

// "cases", by state and operation: milliseconds and MB a second (medians) on
// each side, and peer / ours with the least and the greatest of the rounds.
std::vector<Table> CheckpointTables(
    const std::vector<CheckpointResult>& results);

absl::StatusOr<SuiteReport> RunCheckpointSuite(const BenchFlags& flags,
                                               const std::string& folder);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_CHECKPOINT_SUITE_H_
