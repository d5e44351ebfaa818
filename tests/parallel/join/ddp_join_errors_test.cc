// What DistributedDataParallel cannot do in a Join, by name.

#include <ATen/Functions.h>
#include <torch/nn/modules/linear.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/base/status_macros.h"
#include "core/testing/device_types.h"
#include "core/testing/statuses.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/comm_hooks/compression_hooks.h"
#include "parallel/ddp/distributed_data_parallel.h"
#include "parallel/join/join.h"

namespace tandem::ddp_join_errors_test {
namespace {

using testing::HasSubstr;
using torch::nn::Linear;

Linear NewLinear() {
  Linear linear(2, 2);
  linear->to(TestDevice());
  return linear;
}

at::Tensor Input() { return at::ones({1, 2}, TestDevice()); }

// What each rank is told, of two that have three batches and one.
std::vector<std::string> Said(
    const std::function<absl::Status(DistributedDataParallel<Linear>& ddp,
                                     Join& join, int rank)>& iterate) {
  std::vector<std::string> said(2);
  ExpectOk(RunDeviceRanks(2, [&](Communicator& world) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(auto ddp,
                            MakeDistributedDataParallel(NewLinear(), world));
    const auto train = [&]() -> absl::Status {
      TANDEM_ASSIGN_OR_RETURN(Join join, Join::Begin({ddp.get()}));
      for (int i = 0; i < (world.rank() == 0 ? 3 : 1); ++i) {
        TANDEM_RETURN_IF_ERROR(join.NotifyBatch());
        TANDEM_RETURN_IF_ERROR(iterate(*ddp, join, world.rank()));
      }
      return join.Finish();
    };
    said[static_cast<size_t>(world.rank())] = std::string(train().message());
    return absl::OkStatus();
  }));
  return said;
}

TEST(DdpJoinErrorTest, NamesWhatAnIterationMayNotDo) {
  EXPECT_THAT(Said([&](auto& ddp, Join&, int) -> absl::Status {
                TANDEM_RETURN_IF_ERROR(ddp.Forward(Input()).status());
                return ddp.Forward(Input()).status();
              })[0],
              HasSubstr("an iteration has one forward with gradients"));
  EXPECT_THAT(Said([&](auto& ddp, Join&, int) -> absl::Status {
                TANDEM_ASSIGN_OR_RETURN(const at::Tensor y,
                                        ddp.Forward(Input()));
                const NoSyncGuard guard = ddp.no_sync();
                return ddp.Backward(y.sum());
              })[0],
              HasSubstr("no_sync goes around forward and backward"));
  for (const std::string& each :
       Said([&](auto&ddp, Join&, int rank) -> absl::Status {
         std::optional<NoSyncGuard> guard;
         if (rank == 0) guard.emplace(ddp.no_sync());
         return ddp.Forward(Input()).status();
       })) {
    EXPECT_THAT(each, HasSubstr("1 of the 2 ranks that have inputs average"));
  }
  ExpectOk(RunDeviceRanks(2, [](Communicator& world) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(auto ddp,
                            MakeDistributedDataParallel(NewLinear(), world));
    TANDEM_ASSIGN_OR_RETURN(Join join, Join::Begin({ddp.get()}));
    EXPECT_THAT(Join::Begin({ddp.get()}).status(), Says("in a Join already"));
    TANDEM_RETURN_IF_ERROR(join.Finish());
    TANDEM_ASSIGN_OR_RETURN(auto other,
                            MakeDistributedDataParallel(NewLinear(), world));
    TANDEM_RETURN_IF_ERROR(other->register_comm_hook(AllReduceHook()));
    JoinOptions options;
    options.divide_by_initial_world_size = false;
    EXPECT_THAT(Join::Begin({other.get()}, options).status(),
                Says("has a communication hook, which divides for itself"));
    return absl::OkStatus();
  }));
}

}  // namespace
}  // namespace tandem::ddp_join_errors_test
