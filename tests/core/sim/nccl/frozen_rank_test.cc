// A rank that freezes while simulated NCCL moves data: ranks are processes,
// forked before this one has touched LibTorch.

#include <ATen/core/Tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "core/base/status_macros.h"
#include "core/comm/communicator.h"
#include "core/sim/memory/block.h"
#include "core/sim/testing.h"
#include "core/store/store.h"
#include "tests/core/sim/nccl/nccl_ranks.h"
#include "tests/core/testing/forked_rank.h"

namespace tandem {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// So large that it has begun long before it ends.
constexpr int64_t kNumel = 64 << 20;

// Once one of the sums is there.
void FreezeInTheMiddle(const at::Tensor& tensor) {
  const auto* const values =
      static_cast<const volatile float*>(sim::ToHostPointer(tensor.data_ptr()));
  for (int64_t at = 0; values[at] != 2; at = (at + kNumel / 64) % kNumel) {
  }
  raise(SIGSTOP);
}

// What a rank's all-reduce ends with, in which rank 1 freezes.
absl::Status ReduceUntilItFreezes(const std::string& path, int rank) {
  SimDevices(2);
  CommunicatorOptions options;
  options.timeout = std::chrono::seconds(3);
  options.backend = "sim_nccl";
  TANDEM_ASSIGN_OR_RETURN(
      StorePtr store, OpenFileStore(path, rank, 2, "", options.timeout * 5));
  TANDEM_ASSIGN_OR_RETURN(
      const auto world, Communicator::Create(store, rank, 2, "world", options));
  SubgroupOptions own;
  own.device = SimDevice(rank);
  TANDEM_ASSIGN_OR_RETURN(const auto group,
                          world->Subgroup({0, 1}, "group", own));
  const NcclRank mine = {*world, *group, rank, *own.device};
  at::Tensor tensor = mine.Full(kNumel, 1);
  TANDEM_RETURN_IF_ERROR(world->Barrier());
  TANDEM_RETURN_IF_ERROR(group->AllReduceSum(tensor));
  if (rank == 1) FreezeInTheMiddle(tensor);
  return group->Synchronize();
}

// It comes back from where its communicators are destroyed.
TEST(NcclFrozenRank, IsNotWaitedForInTheMiddleOfACollective) {
  const std::string path = TestFile(".store");
  std::vector<std::unique_ptr<ForkedRank>> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.push_back(std::make_unique<ForkedRank>(
        rank, [&, rank] { return ReduceUntilItFreezes(path, rank); }));
  }
  EXPECT_THAT(ranks[0]->Result(),
              AllOf(HasSubstr("not heard of: rank 1"), Not(HasSubstr("died"))));
}

}  // namespace
}  // namespace tandem
