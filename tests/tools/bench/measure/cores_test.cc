#include "tools/bench/measure/cores.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <thread>
#include <vector>

namespace tandem::cores_test {
namespace {

using testing::ElementsAre;
using testing::SizeIs;

int Available() {
  return static_cast<int>(std::thread::hardware_concurrency());
}

TEST(Cores, AreThoseThatTheThreadMayUse) {
  EXPECT_GE(CoreNumber(0, 1), 0);
  EXPECT_THAT(CoreNumbers(0, 1, 1), SizeIs(1));
  EXPECT_EQ(CoreNumbers(0, 1, 1).front(), CoreNumber(0, 1));
  // None is bound where there are too few for all.
  EXPECT_THAT(CoreNumbers(1, 2, Available() + 1), ElementsAre(-1, -1));
}

TEST(OnEachCore, RunsThereAndGivesTheFirstError) {
  const int core = CoreNumber(0, 1);
  std::atomic<int> runs{0};
  EXPECT_TRUE(OnEachCore({core, -1}, [&](size_t index) {
                if (index == 0) {
                  EXPECT_EQ(sched_getcpu(), core);
                }
                ++runs;
                return absl::OkStatus();
              }).ok());
  EXPECT_EQ(runs, 2);
  const absl::Status error = absl::InternalError("no luck");
  EXPECT_EQ(OnEachCore({-1, -1}, [&](size_t) { return error; }), error);
}

}  // namespace
}  // namespace tandem::cores_test
