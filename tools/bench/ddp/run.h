// A case of distributed data parallel: tandem and its peers side by side.

#ifndef TANDEM_TOOLS_BENCH_DDP_RUN_H_
#define TANDEM_TOOLS_BENCH_DDP_RUN_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/bench/comparison/start.h"
#include "tools/bench/ddp/result.h"

namespace tandem {

// "eager", PyTorch's DistributedDataParallel; "compile", the same under
// torch.compile; "find_unused", tandem itself with find_unused_parameters.
struct DdpPeers {
  std::vector<std::string> names = {"eager", "compile"};
  bool compile_may_fail = true;  // torch.compile does not run everywhere
};

// Starts all contenders from the same weights and batches, and compares losses
// before it measures anything; then they take turns. Prints what it does on
// stderr.
//
// An error when one fails or losses differ. Only a peer "compile" that cannot
// compile is none where it may fail: its result says why.
absl::StatusOr<DdpResult> RunDdpCase(const Case& bench, const DdpPeers& peers,
                                     const ComparisonOptions& options);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_DDP_RUN_H_
