// The suite "fsdp": parameters sharded over replicas, beside PyTorch's
// fully_shard.

#ifndef TANDEM_TOOLS_BENCH_FSDP_SUITE_H_
#define TANDEM_TOOLS_BENCH_FSDP_SUITE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/bench/case/case.h"
#include "tools/bench/suite/suite.h"

namespace tandem {

// mlp_wide, gpt_tiny, gpt_baby and llama_baby, in replicas of one rank that
// share parameters: a batch of the workload for each rank. On both sides each
// linear layer or block is gathered by itself, ahead of its use, and freed
// after forward.
std::vector<Case> FsdpCases(int ranks);

absl::StatusOr<SuiteReport> RunFsdpSuite(const BenchFlags& flags,
                                         const std::string& folder);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_FSDP_SUITE_H_
