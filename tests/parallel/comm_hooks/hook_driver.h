// For tests: calls a communication hook as a reducer does.

#ifndef TANDEM_TESTS_PARALLEL_COMM_HOOKS_HOOK_DRIVER_H_
#define TANDEM_TESTS_PARALLEL_COMM_HOOKS_HOOK_DRIVER_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/comm/communicator.h"
#include "parallel/comm_hooks/communication_hook.h"

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

}  // namespace tandem

#endif  // TANDEM_TESTS_PARALLEL_COMM_HOOKS_HOOK_DRIVER_H_
