// One case of tools/bench_gpu, measured: tandem and its peers on one device.

#ifndef TANDEM_TOOLS_BENCH_GPU_RUN_H_
#define TANDEM_TOOLS_BENCH_GPU_RUN_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/bench/comparison/result.h"
#include "tools/bench/comparison/start.h"

namespace tandem {

struct GpuPeers {
  // Recipes of tools/bench/peers/one_device.py.
  std::vector<std::string> names = {"eager"};
  // Those that may fail: the result then says why.
  std::vector<std::string> may_fail = {};
};

// "eager" and "compile", and on a GPU "reduce_overhead" and "cuda_graphs":
// all of them may fail but the first.
GpuPeers UsualGpuPeers(const std::string& device);

// Losses are compared first; then tandem and the peers take turns. Whoever is
// not at work sleeps, and keeps its memory.
absl::StatusOr<CaseResult> RunGpuCase(const Case& bench, const GpuPeers& peers,
                                      const ComparisonOptions& options);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_GPU_RUN_H_
