// For tests: ranks with PowerSgd and gradients of which some are compressed.

#ifndef TANDEM_TESTS_PARALLEL_COMM_HOOKS_POWER_SGD_RANKS_H_
#define TANDEM_TESTS_PARALLEL_COMM_HOOKS_POWER_SGD_RANKS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/base/named_tensors.h"
#include "core/comm/communicator.h"
#include "parallel/comm_hooks/power_sgd.h"
#include "tests/parallel/comm_hooks/hook_driver.h"

namespace tandem {

// Three that are compressed up to rank 3, "weight" [24, 17], "conv"
// [16, 5, 3, 3], channels-last, and "turned" [19, 23], transposed; and some
// that are not: "bias" [24], "small" [3, 4], "scalar", "plain" [13], "row" [1,
// 50], "empty" [0, 4].
const std::vector<DriverParameters>& PowerSgdBuckets();
const std::vector<std::string>& CompressedNames();

// Compresses from the first iteration on, and all that gets smaller.
PowerSgdOptions AtOnce(int64_t rank);

// Gradients whose mean over the ranks has rank `rank` as a matrix: all ranks
// have the same columns, each mixes them in its own way. And that mean.
at::Tensor LowRank(int step, int who, int64_t rank, const std::string& name,
                   at::IntArrayRef sizes);
at::Tensor MeanLowRank(int step, int ranks, int64_t rank,
                       const std::string& name, at::IntArrayRef sizes);

// Internal unless the gradient is within `tolerance` of what is expected.
absl::Status Close(const HookDriver& driver, const std::string& name,
                   const at::Tensor& expected, double tolerance);

// The tensor of that name; undefined when there is none.
at::Tensor StateTensor(const NamedTensors& state, const std::string& name);

// Runs fn on n ranks, each with its PowerSgd and its PowerSgdBuckets().
using OnRank =
    std::function<absl::Status(Communicator&, PowerSgd&, HookDriver&)>;
absl::Status RunPowerSgd(int n, const PowerSgdOptions& options,
                         const OnRank& fn, at::ScalarType dtype = at::kFloat);

// Reduces the Normal() gradients of this step; checks that all ranks end with
// the same bits.
absl::Status ReduceNormal(int step, Communicator& world, PowerSgd& power_sgd,
                          HookDriver& driver);

}  // namespace tandem

#endif  // TANDEM_TESTS_PARALLEL_COMM_HOOKS_POWER_SGD_RANKS_H_
