// The suite "data_parallel": DataParallel beside one device, LibTorch's own
// data_parallel and DistributedDataParallel.

#ifndef TANDEM_TOOLS_BENCH_DATA_PARALLEL_SUITE_H_
#define TANDEM_TOOLS_BENCH_DATA_PARALLEL_SUITE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/bench/data_parallel/nets.h"
#include "tools/bench/data_parallel/run.h"
#include "tools/bench/suite/suite.h"

namespace tandem {

struct ProblemResult {
  BenchProblem problem;
  std::vector<WayResult> ways;  // the first is one device
};

// "cases": medians, each way as a multiple of the first one's speed, and how
// far its losses are apart; "problems": what was trained, on which devices.
std::vector<Table> DataParallelTables(const std::vector<ProblemResult>& results,
                                      const std::string& devices);

// On GPUs where there are enough, else on simulated devices, which work at the
// same time as far as there are cores.
absl::StatusOr<SuiteReport> RunDataParallelSuite(const BenchFlags& flags,
                                                 const std::string& folder);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_DATA_PARALLEL_SUITE_H_
