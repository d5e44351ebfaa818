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

#include "absl/base/attributes.h"
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

// So large that it is seen to have begun before it has ended.
constexpr int64_t kNumel = 16 << 20;
constexpr int64_t kSamples = 64;

// Once some of the sums are there, and others are not. Comes back if all are:
// it looked too late. What it reads, another thread writes.
ABSL_ATTRIBUTE_NO_SANITIZE_THREAD
void FreezeInTheMiddle(const at::Tensor& tensor, float sum) {
  const auto* const values =
      static_cast<const volatile float*>(sim::ToHostPointer(tensor.data_ptr()));
  for (int64_t there = 0; there < kSamples;) {
    there = 0;
    for (int64_t i = 0; i < kSamples; ++i) {
      if (values[i * (kNumel / kSamples)] == sum) ++there;
    }
    if (there > 0 && there < kSamples) raise(SIGSTOP);
  }
}

// All-reduces until rank 1 freezes in one; what that ends with.
absl::Status ReduceUntilItFreezes(const std::string& path, int rank) {
  SimDevices(2);
  CommunicatorOptions options;
  options.timeout = std::chrono::seconds(5);
  options.backend = "sim_nccl";
  TANDEM_ASSIGN_OR_RETURN(
      StorePtr store, OpenFileStore(path, rank, 2, "", options.timeout * 4));
  TANDEM_ASSIGN_OR_RETURN(
      const auto world, Communicator::Create(store, rank, 2, "world", options));
  SubgroupOptions own;
  own.device = SimDevice(rank);
  TANDEM_ASSIGN_OR_RETURN(const auto group,
                          world->Subgroup({0, 1}, "group", own));
  const NcclRank mine = {*world, *group, rank, *own.device};
  at::Tensor tensor = mine.Full(kNumel, 1);
  TANDEM_RETURN_IF_ERROR(world->Barrier());
  for (float sum = 2;; sum *= 2) {
    TANDEM_RETURN_IF_ERROR(group->AllReduceSum(tensor));
    if (rank == 1) FreezeInTheMiddle(tensor, sum);
    TANDEM_RETURN_IF_ERROR(group->Synchronize());
  }
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
