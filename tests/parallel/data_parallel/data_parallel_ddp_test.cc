// DistributedDataParallel around DataParallel: each rank has several devices
// with a replica each, as in demo_basic of PyTorch's DDP tutorial.

#include <ATen/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>

#include <memory>
#include <string>
#include <vector>

#include "core/base/status_macros.h"
#include "core/comm/communicator.h"
#include "core/testing/device_types.h"
#include "core/testing/statuses.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/data_parallel.h"
#include "parallel/distributed_data_parallel.h"
#include "parallel/optim/flat_buffer.h"
#include "parallel/optim/flat_buffer_list.h"
#include "parallel/optim/make_optimizer.h"
#include "tests/parallel/data_parallel/fixture.h"

namespace tandem::data_parallel_ddp_test {
namespace {

template <typename Net>
using Parallel = std::shared_ptr<DataParallel<std::shared_ptr<Net>>>;

// Two devices a rank.
std::vector<c10::Device> DevicesOfRank() {
  return {TestDevice(0), TestDevice(1)};
}

template <typename Net>
Parallel<Net> NewParallel(const std::shared_ptr<Net>& net) {
  return Wrapped(net, DevicesOfRank());
}

class DataParallelDdpTest : public DeviceTypesAnd<int> {
 protected:
  void OnRanks(const std::function<absl::Status(Communicator&)>& body) {
    ExpectOk(RunDeviceRanks(value(), body));
  }
};

TEST_P(DataParallelDdpTest, TrainsAsOneModuleOnTheWholeBatch) {
  OnRanks([](Communicator& world) -> absl::Status {
    const auto net = NewNet<TwiceNet>(TestDevice());
    const auto alone = NewNet<TwiceNet>(TestDevice());
    TANDEM_ASSIGN_OR_RETURN(
        const auto ddp, MakeDistributedDataParallel(NewParallel(net), world));
    TANDEM_ASSIGN_OR_RETURN(const auto optimizer,
                            MakeOptimizer(AdamOptions{}, ddp->flat_buffers()));
    const FlatBuffers others = MakeFlatBuffers(
        ModuleTraits<std::shared_ptr<TwiceNet>>::Parameters(alone));
    TANDEM_ASSIGN_OR_RETURN(const auto other,
                            MakeOptimizer(AdamOptions{}, others));
    for (int step = 0; step < 4; ++step) {
      std::vector<at::Tensor> shares;
      for (int rank = 0; rank < world.size(); ++rank) {
        shares.push_back(
            InputOf(6, 5, step * world.size() + rank, TestDevice()));
      }
      ddp->ZeroGrad();
      for (const auto& each : others) each->ZeroGrad();
      TANDEM_ASSIGN_OR_RETURN(
          const at::Tensor outputs,
          ddp->Forward(shares[static_cast<size_t>(world.rank())]));
      TANDEM_RETURN_IF_ERROR(ddp->Backward(outputs.square().mean()));
      alone->forward(at::cat(shares)).square().mean().backward();
      const std::string when = "in step " + std::to_string(step);
      ExpectModule(*net, *alone, /*same_bits=*/false, when);
      optimizer->Step(0.01);
      other->Step(0.01);
      ExpectModule(*net, *alone, /*same_bits=*/false, "after " + when);
    }
    return absl::OkStatus();
  });
}

// Rank 0's buffers, of its first device.
TEST_P(DataParallelDdpTest, BuffersAreTheFirstDevicesOfRank0) {
  OnRanks([](Communicator& world) -> absl::Status {
    const auto net = NewNet<NormNet>(TestDevice());
    const auto alone = NewNet<NormNet>(TestDevice());
    const Parallel<NormNet> parallel = NewParallel(net);
    TANDEM_ASSIGN_OR_RETURN(const auto ddp,
                            MakeDistributedDataParallel(parallel, world));
    for (int step = 0; step < 3; ++step) {
      TANDEM_ASSIGN_OR_RETURN(
          const at::Tensor outputs,
          ddp->Forward(
              InputOf(6, 4, step * world.size() + world.rank(), TestDevice())));
      TANDEM_RETURN_IF_ERROR(ddp->Backward(outputs.square().sum()));
      alone->forward(InputOf(3, 4, step * world.size(), TestDevice()));
      if (world.rank() != 0) continue;
      ExpectClose(net->norm->running_mean, alone->norm->running_mean, "mean");
    }
    // What is broadcast reaches the other devices of every rank.
    net->eval();
    const at::NoGradGuard no_grad;
    const at::Tensor x = InputOf(6, 4, 99, TestDevice());
    TANDEM_ASSIGN_OR_RETURN(const at::Tensor found, ddp->Forward(x));
    ExpectClose(found, net->forward(x), "in evaluation");
    return absl::OkStatus();
  });
}

TEST_P(DataParallelDdpTest, AnErrorNamesTheReplica) {
  OnRanks([](Communicator& world) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(
        const auto ddp,
        MakeDistributedDataParallel(NewParallel(NewNet<TwiceNet>(TestDevice())),
                                    world));
    const absl::Status status =
        ddp->Forward(InputOf(6, 4, 0, TestDevice())).status();
    EXPECT_THAT(status, InvalidArgument("forward", "replica 0 of 2, on "));
    return absl::OkStatus();
  });
}

TANDEM_ON_DEVICE_TYPES_AND(DataParallelDdpTest, testing::Range(1, 8));

}  // namespace
}  // namespace tandem::data_parallel_ddp_test
