// A group of which one rank is there (the backend "alone"): the others are
// imagined to have what it has.

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/comm/communicator.h"
#include "core/comm/group_buffer.h"
#include "core/sim/sim.h"
#include "core/store/store.h"

namespace tandem {
namespace {

constexpr int kRanks = 3;

absl::StatusOr<std::unique_ptr<Communicator>> Alone(bool all_local) {
  CommunicatorOptions options;
  options.backend = "cpu:alone,sim:sim_links";
  options.all_local = all_local;
  return Communicator::Create(NewHashStore(std::chrono::seconds(1)), /*rank=*/1,
                              kRanks, "world", options);
}

class AloneGroupTest : public testing::Test {
 protected:
  AloneGroupTest() {
    SimOptions options;
    options.imagined = true;
    EXPECT_TRUE(EnableSim(options).ok());
  }
};

TEST_F(AloneGroupTest, CollectivesAreOfRanksThatHaveTheSame) {
  const auto world = Alone(/*all_local=*/true);
  ASSERT_TRUE(world.ok()) << world.status();
  Communicator& group = **world;
  const at::Tensor two = at::full({2}, 2.0);
  ASSERT_TRUE(group.AllReduceSum(two).ok());
  EXPECT_TRUE(at::equal(two, at::full({2}, 6.0)));
  auto pending = group.StartAllReduceSum(two, /*factor=*/1.0 / kRanks);
  ASSERT_TRUE(pending.ok()) << pending.status();
  ASSERT_TRUE(pending->Wait().ok());
  EXPECT_TRUE(at::equal(two, at::full({2}, 6.0)));
  ASSERT_TRUE(group.Broadcast(two, /*root=*/0).ok());
  EXPECT_TRUE(at::equal(two, at::full({2}, 6.0)));
  const auto all = group.AllGatherString("mine");
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(*all, std::vector<std::string>(kRanks, "mine"));
  EXPECT_TRUE(group.Barrier().ok());
}

TEST_F(AloneGroupTest, MeetsNobodyInSubgroups) {
  const auto world = Alone(/*all_local=*/true);
  ASSERT_TRUE(world.ok()) << world.status();
  SubgroupOptions options;
  options.device = SimDevice(0);
  const auto some = (*world)->Subgroup({1, 2}, "some", options);
  ASSERT_TRUE(some.ok()) << some.status();
  const at::Tensor on_host = at::full({1}, int64_t{5});
  ASSERT_TRUE((*some)->AllReduceSum(on_host).ok());
  EXPECT_EQ(on_host.item<int64_t>(), 10);
  EXPECT_TRUE((*some)->AllReduceSum(at::full({1}, 5.0, SimDevice(0))).ok());
}

TEST_F(AloneGroupTest, SharesMemoryAsRanksOfOneHostDo) {
  for (const bool all_local : {true, false}) {
    const auto world = Alone(all_local);
    ASSERT_TRUE(world.ok()) << world.status();
    EXPECT_EQ(SharesMemory(**world), all_local);
    const auto buffer = NewGroupBuffer(**world, 5, at::kFloat);
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    EXPECT_EQ(buffer->numel(), 5);
  }
}

}  // namespace
}  // namespace tandem
