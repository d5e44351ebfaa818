#include "tests/core/sim/nccl/nccl_ranks.h"

#include <ATen/ops/full.h>

#include <numeric>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "core/base/status_macros.h"
#include "core/sim/testing.h"
#include "core/testing/thread_ranks.h"

namespace tandem {

at::Tensor NcclRank::Full(int64_t size, double value) const {
  return at::full({size}, value, at::device(device).dtype(at::kFloat));
}

c10d::Backend& NcclRank::backend() const {
  return *group.process_group()->getBackend(device.type());
}

absl::Status RunNcclRanks(
    int n, const std::function<absl::Status(const NcclRank&)>& work,
    int timeout) {
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

void RunTwice(const std::function<void()>& operators) {
  operators();
  operators();
}

absl::Status Expect(bool holds, const std::string& what) {
  return holds ? absl::OkStatus() : absl::InternalError(what);
}

}  // namespace tandem
