#include "core/health/roll_call.h"

#include <gtest/gtest.h>

#include <chrono>

#include "core/health/group_member.h"
#include "core/health/job_notes.h"
#include "core/store/store.h"

namespace tandem {
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

}  // namespace
}  // namespace tandem
