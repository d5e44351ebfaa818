#include "core/health/group_failures.h"

#include <c10/util/intrusive_ptr.h>
#include <gtest/gtest.h>

#include <chrono>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "core/health/group_member.h"
#include "core/health/job_notes.h"
#include "core/store/store.h"

namespace tandem::group_failures_test {
namespace {

// Each has a reason of its own, and reads no other's: rank 0, which stays for
// those that do, stays for nobody. (It would stay for an hour.)
TEST(RollCallTest, NobodyIsAwaitedWhenAllHaveGivenUp) {
  const StorePtr store = NewHashStore(std::chrono::hours(1));
  const GroupMember zero = MemberOfWhole(store, 0, 2);
  TellGivingUp(MemberOfWhole(store, 1, 2), "disk full");
  TellGivingUp(zero, "no such file");
  AwaitListeners(zero, std::chrono::hours(1));
  EXPECT_EQ(FailureInJob(zero), "rank 1 gave up: disk full");
}

// Eight of ten that failed in one operation are described.
TEST(RollCallTest, OfManyFailuresSomeAreDescribed) {
  constexpr int kRanks = 11;
  const StorePtr store = NewHashStore(std::chrono::hours(1));
  constexpr std::chrono::milliseconds kPatience(1);
  Failures told;
  for (int rank = 1; rank <= kRanks; ++rank) {
    told = TellFailure(MemberOfWhole(store, rank % kRanks, kRanks), "bucket 1",
                       /*asks_job=*/false, kPatience, [] {});
  }
  EXPECT_EQ(told.others.find("rank 9 failed"), std::string::npos);
  EXPECT_NE(told.others.find("rank 8 failed in bucket 1; and 2 more"),
            std::string::npos)
      << told.others;
}

// Rank 1 looks into failures of two groups at once. It may still read the notes
// of the first when it has done with the second: rank 0 must not go.
TEST(RollCallTest, ARankHasHeardAllWithItsLastFailure) {
  const StorePtr store = NewHashStore(std::chrono::hours(1));
  const GroupMember world = MemberOfWhole(store, 1, 2);
  GroupMember part = world;
  part.store = c10::make_intrusive<c10d::PrefixStore>("part", store);
  part.name = "part";
  const auto has_heard = [&] { return store->check({KeyOf("heard", 1)}); };
  constexpr std::chrono::milliseconds kPatience(100);
  TellFailure(world, "the loss", /*asks_job=*/false, kPatience, [&] {
    TellFailure(part, "bucket 1", /*asks_job=*/false, kPatience, [] {});
    EXPECT_FALSE(has_heard());
  });
  EXPECT_TRUE(has_heard());
}

}  // namespace
}  // namespace tandem::group_failures_test
