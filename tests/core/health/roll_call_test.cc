#include "core/health/roll_call.h"

#include <gtest/gtest.h>

#include <chrono>

#include "core/health/group_member.h"
#include "core/health/job_notes.h"
#include "core/store/store.h"

namespace tandem {
namespace {

GroupMember MemberOfTwo(const StorePtr& store, int rank) {
  GroupMember member;
  member.store = store;
  member.rank = rank;
  member.size = 2;
  member.name = "world";
  member.job = store;
  member.job_size = 2;
  return member;
}

// Each has a reason of its own, and reads no other's: rank 0, which stays for
// those that do, stays for nobody. (It would stay for an hour.)
TEST(RollCallTest, NobodyIsAwaitedWhenAllHaveGivenUp) {
  const StorePtr store = NewHashStore(std::chrono::hours(1));
  const GroupMember zero = MemberOfTwo(store, 0);
  TellGivingUp(MemberOfTwo(store, 1), "disk full");
  TellGivingUp(zero, "no such file");
  AwaitListeners(zero, std::chrono::hours(1));
  EXPECT_EQ(FailureInJob(zero), "rank 1 gave up: disk full");
}

}  // namespace
}  // namespace tandem
