// The suite "data_parallel": DataParallel beside one device, LibTorch's own
// data_parallel and DistributedDataParallel.

#ifndef TANDEM_TOOLS_BENCH_DATA_PARALLEL_SUITE_H_
#define TANDEM_TOOLS_BENCH_DATA_PARALLEL_SUITE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/bench/data_parallel/methods.h"
#include "tools/bench/suite/suite.h"

namespace tandem {

struct MethodResult {
  std::string name;
  double apart = 0;             // of the first one's losses, at most
  std::vector<double> wall_ms;  // a step, by round
  std::vector<double> cpu_ms;
};

struct RunLength {
  int checked_steps = 5;  // of which losses are compared
  int rounds = 7;
  int steps = 10;  // of a round
};

// All ways take the same steps. Internal, naming the way and the step, where a
// loss is further than 1e-4 from the first way's.
absl::StatusOr<std::vector<MethodResult>> CompareMethods(
    const BenchProblem& problem, const std::vector<NamedMethod>& ways,
    const RunLength& length);

struct ProblemResult {
  BenchProblem problem;
  std::vector<MethodResult> ways;  // the first is one device
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
