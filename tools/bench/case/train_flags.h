// Flags of `train` for a benchmark's workload: jobs that are started whole.

#ifndef TANDEM_TOOLS_BENCH_CASE_TRAIN_FLAGS_H_
#define TANDEM_TOOLS_BENCH_CASE_TRAIN_FLAGS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tools/bench/case/workload.h"

namespace tandem {

// One epoch of `steps` steps under DDP, each of the workload's batch on every
// rank, on samples that are made up.
std::vector<std::string> TrainFlags(const Workload& workload, int ranks,
                                    int64_t steps);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_CASE_TRAIN_FLAGS_H_
