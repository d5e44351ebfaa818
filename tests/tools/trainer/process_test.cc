#include "tools/trainer/process.h"

#include <ATen/Parallel.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace tandem {
namespace {

TEST(ProcessTest, ThreadsAreThoseAskedForThenOmpsThenTheCoresShared) {
  setenv("OMP_NUM_THREADS", "3", 1);
  EXPECT_EQ(IntraOpThreads(5, 2, false), 5);
  EXPECT_EQ(IntraOpThreads(0, 2, false), 3);
  setenv("OMP_NUM_THREADS", "many", 1);
  const int all = IntraOpThreads(0, 1, false);
  EXPECT_GE(all, 1);
  unsetenv("OMP_NUM_THREADS");
  EXPECT_EQ(IntraOpThreads(0, 1, false), all);
  EXPECT_EQ(IntraOpThreads(0, 10000, false), 1);
  EXPECT_EQ(IntraOpThreads(0, 10000, /*bound=*/true), all);
}

TEST(ProcessTest, ConfigureSetsLibTorchsThreads) {
  ConfigureProcess(1);
  EXPECT_EQ(at::get_num_threads(), 1);
}

TEST(ProcessTest, PeakMemoryGrowsWithWhatIsTouched) {
  const double before = PeakRssMib();
  EXPECT_GT(before, 1);
  std::vector<char> block(256 << 20, 1);
  EXPECT_GT(PeakRssMib(), before + 128) << block[4096];
}

TEST(ProcessTest, TimeSinceStartIsPositiveAndGrows) {
  const double first = MillisecondsSinceStart();
  EXPECT_GE(first, 0);
  EXPECT_LT(first, 600e3);
  EXPECT_GE(MillisecondsSinceStart(), first);
  // `bazel run` built first: that time is not the program's.
  setenv("BUILD_WORKING_DIRECTORY", "/", 1);
  const double loaded = MillisecondsSinceStart();
  unsetenv("BUILD_WORKING_DIRECTORY");
  EXPECT_GE(loaded, 0);
  // The kernel counts a process's start in ticks of 10 ms.
  EXPECT_LT(loaded, MillisecondsSinceStart() + 10);
}

}  // namespace
}  // namespace tandem
