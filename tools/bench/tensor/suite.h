// The suite "tensor" compares layers that ranks share with PyTorch's
// torch.distributed.tensor.parallel.

#ifndef TANDEM_TOOLS_BENCH_TENSOR_SUITE_H_
#define TANDEM_TOOLS_BENCH_TENSOR_SUITE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/bench/case/case.h"
#include "tools/bench/comparison/contender.h"
#include "tools/bench/comparison/run.h"
#include "tools/bench/suite/suite.h"

namespace tandem {

// gpt_tiny, gpt_baby and llama_baby, as far as the ranks divide their heads and
// tokens: one replica, with a batch of the workload for each of its ranks.
std::vector<Case> TensorCases(int ranks);

// The first is tandem without sequence parallelism, as a case's own setting has
// it. The others are PyTorch's `ways`, which are recipes of
// tools/bench/peers/tensor.py. An empty list stands for all of them, of which
// those that are compiled may fail.
std::vector<Peer> TensorPeers(const std::vector<std::string>& ways);

// The tables of TablesWithMemory compare the fastest way of each side; "ways"
// has every way.
std::vector<Table> TensorTables(const std::vector<CaseResult>& results);

absl::StatusOr<SuiteReport> RunTensorSuite(const BenchFlags& flags,
                                           const std::string& folder);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_TENSOR_SUITE_H_
