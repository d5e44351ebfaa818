// For tests: calls a communication hook as a reducer does.

#ifndef TANDEM_TESTS_PARALLEL_COMM_HOOKS_HOOK_DRIVER_H_
#define TANDEM_TESTS_PARALLEL_COMM_HOOKS_HOOK_DRIVER_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/base/tensors.h"
#include "core/comm/communicator.h"
#include "parallel/comm_hooks/communication_hook.h"
#include "parallel/comm_hooks/power_sgd.h"

namespace tandem {

struct DriverParameter {
  std::string name;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides = {};  // empty: contiguous
};
using DriverParameters = std::vector<DriverParameter>;

// The gradients of the calling rank in flat buckets on its TestDevice(): after
// each, zeros up to a multiple of 16 elements.
class HookDriver {
 public:
  // The parameters of each bucket.
  HookDriver(const std::vector<DriverParameters>& buckets,
             at::ScalarType dtype = at::kFloat);

  // The gradient of the parameter of that name; a CHECK fails without one.
  at::Tensor gradient(const std::string& name) const;
  std::vector<GradBucket>& buckets() { return buckets_; }

  // Sets every gradient to value(name, sizes), converted.
  void Fill(const std::function<at::Tensor(const std::string& name,
                                           at::IntArrayRef sizes)>& value);

  // One backward's end: starts all buckets in index order, then finishes them
  // in that order.
  absl::Status Reduce(const CommunicationHook& hook, Communicator& group);

  // Internal unless all ranks have the same bits in all buckets, and zeros in
  // the padding.
  absl::Status CheckAlike(Communicator& group) const;

 private:
  std::vector<GradBucket> buckets_;
};

// Normal numbers, a function of the arguments.
at::Tensor Normal(int step, int rank, const std::string& name,
                  at::IntArrayRef sizes);

// Fills with the numbers of this step and rank.
void FillNormal(int step, int rank, HookDriver* driver);

// Their mean over `ranks` ranks, in double.
at::Tensor MeanNormal(int step, int ranks, const std::string& name,
                      at::IntArrayRef sizes);

// Ranks with PowerSgd, and gradients of which some are compressed.

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

#endif  // TANDEM_TESTS_PARALLEL_COMM_HOOKS_HOOK_DRIVER_H_
