// For tests of simulated NCCL: ranks that are threads, each with a device and a
// communicator for it.

#ifndef TANDEM_TESTS_CORE_SIM_NCCL_NCCL_RANKS_H_
#define TANDEM_TESTS_CORE_SIM_NCCL_NCCL_RANKS_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <functional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "absl/status/status.h"
#include "core/comm/communicator.h"

namespace tandem {

struct NcclRank {
  Communicator& world;  // of the host's tensors: to meet beside the device
  Communicator& group;  // "group", with a communicator for `device`
  int rank;
  c10::Device device;

  // [size] Float, all of this value, on the device.
  at::Tensor Full(int64_t size, double value) const;
  // The device's backend itself.
  c10d::Backend& backend() const;
};

// `timeout` seconds for each wait.
absl::Status RunNcclRanks(
    int n, const std::function<absl::Status(const NcclRank&)>& work,
    int timeout = 30);

// A simulated device runs an operator's first call with new shapes at once, and
// the host waits for it: tests of a host that does not wait call each one of
// theirs here before.
void RunTwice(const std::function<void()>& operators);

// An error that says `what`, unless it holds.
absl::Status Expect(bool holds, const std::string& what);

}  // namespace tandem

#endif  // TANDEM_TESTS_CORE_SIM_NCCL_NCCL_RANKS_H_
