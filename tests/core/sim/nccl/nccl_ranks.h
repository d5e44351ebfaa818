// For tests of simulated NCCL: ranks that are threads, each with a device and a
// communicator for it.

#ifndef TANDEM_TESTS_CORE_SIM_NCCL_NCCL_RANKS_H_
#define TANDEM_TESTS_CORE_SIM_NCCL_NCCL_RANKS_H_

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <c10/core/Device.h>

#include <chrono>
#include <functional>
#include <numeric>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "absl/status/status.h"
#include "core/base/status_macros.h"
#include "core/comm/communicator.h"
#include "core/sim/testing.h"
#include "core/testing/thread_ranks.h"

namespace tandem {

struct NcclRank {
  Communicator& world;  // of the host's tensors: to meet beside the device
  Communicator& group;  // "group", with a communicator for `device`
  int rank;
  c10::Device device;

  // [size] Float, all of this value, on the device.
  at::Tensor Full(int64_t size, double value) const {
    return at::full({size}, value, at::device(device).dtype(at::kFloat));
  }
  // The device's backend itself.
  c10d::Backend& backend() const {
    return *group.process_group()->getBackend(device.type());
  }
};

// `timeout` seconds for each wait.
inline absl::Status RunNcclRanks(
    int n, const std::function<absl::Status(const NcclRank&)>& work,
    int timeout = 30) {
  SimDevices(n);
  CommunicatorOptions options;
  options.timeout = std::chrono::seconds(timeout);
  options.backend = "sim_nccl";
  return RunThreadRanks(
      n,
      [&](Communicator& world) -> absl::Status {
        std::vector<int> all(static_cast<size_t>(n));
        std::iota(all.begin(), all.end(), 0);
        SubgroupOptions own;
        own.device = SimDevice(world.rank());
        TANDEM_ASSIGN_OR_RETURN(const auto group,
                                world.Subgroup(all, "group", own));
        return work({world, *group, world.rank(), *own.device});
      },
      options);
}

// A simulated device runs an operator's first call with new shapes at once, and
// the host waits for it: tests of a host that does not wait call each one of
// theirs here before.
inline void RunTwice(const std::function<void()>& operators) {
  operators();
  operators();
}

// An error that says `what`, unless it holds.
inline absl::Status Expect(bool holds, const std::string& what) {
  return holds ? absl::OkStatus() : absl::InternalError(what);
}

}  // namespace tandem

#endif  // TANDEM_TESTS_CORE_SIM_NCCL_NCCL_RANKS_H_
