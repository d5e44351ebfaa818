// What the hybrid's benchmark trains: models by name, each in each layout, and
// the settings from which a side may choose.

#ifndef TANDEM_TOOLS_BENCH_HYBRID_CASE_H_
#define TANDEM_TOOLS_BENCH_HYBRID_CASE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/bench/bench_case.h"
#include "tools/bench/bench_layout.h"
#include "tools/bench/pipeline_case.h"

namespace tandem {

struct HybridCase {
  std::string name;  // MODEL/LAYOUT
  BenchCase bench;   // batch_size: of all replicas together
  BenchLayout layout;
  std::vector<PipelineSetting> ours;
  std::vector<PipelineSetting> peers;
};

// The models of PipelineCases, in the layouts "1x1", "2x1" (replicas x
// devices), "1x2", "2x2" (two ranks of two devices) and "2x2_ranks" (four
// ranks, two of them a replica). Learning rates are such that losses tell when
// replicas do not average.
//
// The peer's DistributedDataParallel does not see the weight gradients that its
// zero-bubble schedule computes, and averages nothing then: with that schedule
// it has the recipe "flat" alone.
const std::vector<HybridCase>& HybridCases();

// See CasesAmong.
absl::StatusOr<std::vector<HybridCase>> HybridCasesNamed(
    const std::vector<std::string>& names);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_HYBRID_CASE_H_
