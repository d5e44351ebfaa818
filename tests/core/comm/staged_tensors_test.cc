// Tensors of a device that no backend reaches, by way of the host's memory: as
// those of a GPU that ranks share. Simulated devices stand for it, whose memory
// is kept from the backends.

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/base/status_macros.h"
#include "core/comm/communicator.h"
#include "core/device/host_memory.h"
#include "core/sim/testing.h"
#include "core/testing/thread_ranks.h"

namespace tandem::staged_tensors_test {
namespace {

using testing::HasSubstr;

class StagedTensorsTest : public testing::TestWithParam<std::string> {
 protected:
  static void SetUpTestSuite() {
    device_ = SimDevices(1)[0];
    RegisterHostMemory(device_.type(), nullptr);
  }

  // All ranks' tensors lie on one device.
  static at::Tensor Full(double value, c10::ScalarType type = at::kFloat) {
    return at::full({7, 3}, value, at::device(device_).dtype(type));
  }

  static void OnRanks(int n,
                      const std::function<absl::Status(Communicator&)>& fn) {
    CommunicatorOptions options;
    options.backend = GetParam();
    options.stages_on_host = true;
    const absl::Status status = RunThreadRanks(n, fn, options);
    EXPECT_TRUE(status.ok()) << status;
  }

  static void ExpectAll(const at::Tensor& tensor, double value) {
    EXPECT_EQ(tensor.device(), device_);
    EXPECT_TRUE(tensor.cpu().eq(value).all().item<bool>()) << tensor.cpu();
  }

  static c10::Device device_;
};

c10::Device StagedTensorsTest::device_(c10::DeviceType::CPU);

TEST_P(StagedTensorsTest, SumsReachTheDevice) {
  OnRanks(3, [](Communicator& world) -> absl::Status {
    const at::Tensor sum = Full(world.rank() + 1);
    TANDEM_ASSIGN_OR_RETURN(PendingCollective pending,
                            world.StartAllReduceSum(sum, /*factor=*/0.5));
    TANDEM_RETURN_IF_ERROR(pending.Wait());
    ExpectAll(sum, 3);
    EXPECT_TRUE(pending.Wait().ok()) << "a second time";
    const at::Tensor at_root = Full(world.rank());
    TANDEM_ASSIGN_OR_RETURN(PendingCollective reduced,
                            world.StartReduceSum(at_root, /*root=*/2));
    TANDEM_RETURN_IF_ERROR(reduced.Wait());
    if (world.rank() == 2) ExpectAll(at_root, 3);
    return absl::OkStatus();
  });
}

TEST_P(StagedTensorsTest, EachRanksTensorReachesTheOthers) {
  OnRanks(2, [](Communicator& world) -> absl::Status {
    const at::Tensor roots = Full(world.rank() + 5, at::kLong);
    TANDEM_RETURN_IF_ERROR(world.Broadcast(roots, /*root=*/1));
    ExpectAll(roots, 6);
    TANDEM_ASSIGN_OR_RETURN(const std::vector<at::Tensor> all,
                            world.AllGather(Full(world.rank(), at::kBFloat16)));
    for (int rank = 0; rank < 2; ++rank) ExpectAll(all[rank], rank);
    return absl::OkStatus();
  });
}

TEST_P(StagedTensorsTest, MessagesArriveOnTheDevice) {
  OnRanks(2, [](Communicator& world) -> absl::Status {
    const int other = 1 - world.rank();
    const at::Tensor mine = Full(world.rank() + 1);
    const at::Tensor its = Full(0);
    const std::vector<RankMessage> messages = {
        {/*sends=*/true, mine, other, /*tag=*/0},
        {/*sends=*/false, its, other, /*tag=*/0}};
    TANDEM_ASSIGN_OR_RETURN(PendingCollective exchanged,
                            world.StartMessages(messages));
    TANDEM_RETURN_IF_ERROR(exchanged.Wait());
    ExpectAll(its, other + 1);
    ExpectAll(mine, world.rank() + 1);
    return absl::OkStatus();
  });
}

TEST_P(StagedTensorsTest, SubgroupsDoAsTheirWhole) {
  OnRanks(2, [](Communicator& world) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(const auto group, world.Subgroup({1, 0}, "turned"));
    const at::Tensor sum = Full(1);
    TANDEM_RETURN_IF_ERROR(group->AllReduceSum(sum));
    ExpectAll(sum, 2);
    return absl::OkStatus();
  });
}

TEST_P(StagedTensorsTest, AreRefusedUnlessTheyAreAskedFor) {
  CommunicatorOptions options;
  options.backend = GetParam();
  const absl::Status status = RunThreadRanks(
      2, [](Communicator& world) { return world.AllReduceSum(Full(1)); },
      options);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("does not take Float on sim:0"));
}

INSTANTIATE_TEST_SUITE_P(Backends, StagedTensorsTest,
                         testing::Values("shm", "gloo"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tandem::staged_tensors_test
