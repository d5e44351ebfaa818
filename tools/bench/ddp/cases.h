// Cases of distributed data parallel: each workload in replicas of one rank.

#ifndef TANDEM_TOOLS_BENCH_DDP_CASES_H_
#define TANDEM_TOOLS_BENCH_DDP_CASES_H_

#include <vector>

#include "tools/bench/case/case.h"

namespace tandem {

// mlp_small, mlp_wide, resnet18, gpt_tiny: a batch of the workload for each
// rank.
std::vector<Case> DdpCases(int ranks);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_DDP_CASES_H_
