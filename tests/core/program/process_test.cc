#include "core/program/process.h"

#include <ATen/Parallel.h>
#include <c10/core/AllocatorConfig.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <torch/csrc/distributed/c10d/FlightRecorder.hpp>
#include <vector>

#include "gtest/gtest.h"

namespace tandem {
namespace {

TEST(ProcessTest, TheFlagAsksForThreadsElseOpenMpsVariable) {
  unsetenv("OMP_NUM_THREADS");
  EXPECT_EQ(RequestedThreads(0, 1024).value(), 0);
  setenv("OMP_NUM_THREADS", "", 1);
  EXPECT_EQ(RequestedThreads(0, 1024).value(), 0);
  for (const char* three : {"3", " 3 ", "3,2"}) {
    setenv("OMP_NUM_THREADS", three, 1);
    EXPECT_EQ(RequestedThreads(5, 1024).value(), 5);
    EXPECT_EQ(RequestedThreads(0, 1024).value(), 3) << three;
  }
  setenv("OMP_NUM_THREADS", "1024", 1);
  EXPECT_EQ(RequestedThreads(0, 1024).value(), 1024);
}

TEST(ProcessTest, AFlagOutOfRangeIsRefusedAndNotCutShort) {
  for (const int64_t wrong :
       {int64_t{-3}, int64_t{1025}, int64_t{4294967297}}) {
    EXPECT_EQ(RequestedThreads(wrong, 1024).status().message(),
              "--intra_op_threads=" + std::to_string(wrong) +
                  ": must be from 0 to 1024");
  }
}

TEST(ProcessTest, AVariableThatIsNoNumberOfThreadsIsRefused) {
  for (const char* wrong : {"3000", "abc", "-3", "0", ",2", "1.5"}) {
    setenv("OMP_NUM_THREADS", wrong, 1);
    EXPECT_EQ(RequestedThreads(0, 1024).status().message(),
              "OMP_NUM_THREADS=" + std::string(wrong) +
                  ": must be a whole number from 1 to 1024; unset it, or give "
                  "--intra_op_threads");
    EXPECT_EQ(RequestedThreads(5, 1024).value(), 5);  // nobody looks at it
  }
  unsetenv("OMP_NUM_THREADS");
}

TEST(ProcessTest, CoresAreSharedByWhoeverComputesAtOnce) {
  const int all = IntraOpThreads(0, {});
  EXPECT_GE(all, 1);
  EXPECT_EQ(IntraOpThreads(5, {10000, 1, false}), 5);
  EXPECT_EQ(IntraOpThreads(0, {10000, 1, false}), 1);
  EXPECT_EQ(IntraOpThreads(0, {10000, 1, /*bound=*/true}), all);
  // A rank's devices share its own cores, too.
  EXPECT_EQ(IntraOpThreads(0, {10000, all, /*bound=*/true}), 1);
  EXPECT_EQ(IntraOpThreads(0, {1, all, false}), 1);
}

TEST(ProcessTest, ConfigureSetsLibTorchsThreads) {
  ConfigureProcess(1);
  EXPECT_EQ(at::get_num_threads(), 1);
}

// What ConfigureProcess leaves in PYTORCH_ALLOC_CONF.
std::string AllocatorSettings() {
  ConfigureProcess(1);
  const char* const settings = std::getenv("PYTORCH_ALLOC_CONF");
  return settings == nullptr ? "" : settings;
}

TEST(ProcessTest, SegmentsOfGpusGrowUnlessTheUserSaysOtherwise) {
  unsetenv("PYTORCH_ALLOC_CONF");
  setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64", 1);
  EXPECT_EQ(AllocatorSettings(), "");
  unsetenv("PYTORCH_CUDA_ALLOC_CONF");
  setenv("PYTORCH_ALLOC_CONF", "expandable_segments:False", 1);
  EXPECT_EQ(AllocatorSettings(), "expandable_segments:False");
  unsetenv("PYTORCH_ALLOC_CONF");
  EXPECT_EQ(AllocatorSettings(), "expandable_segments:True");
  using Config = c10::CachingAllocator::AcceleratorAllocatorConfig;
  EXPECT_TRUE(Config::use_expandable_segments()) << "read when first asked for";
}

TEST(ProcessTest, TheHostsRecorderIsOffUnlessTheUserSaysOtherwise) {
  constexpr char kSize[] = "TORCH_FR_BUFFER_SIZE";
  auto* const recorder = c10d::getFlightRecorder(c10d::kDefaultFRBackend);
  recorder->enabled_ = true;
  setenv(kSize, "100", 1);
  ConfigureProcess(1);
  EXPECT_TRUE(recorder->enabled_);
  EXPECT_STREQ(std::getenv(kSize), "100");
  unsetenv(kSize);
  ConfigureProcess(1);
  EXPECT_FALSE(recorder->enabled_);
  EXPECT_EQ(std::getenv(kSize), nullptr) << "NCCL's reads it, too";
}

rlimit FileLimit() {
  rlimit limit = {};
  EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  return limit;
}

TEST(ProcessTest, TheSoftLimitOfFilesIsRaisedToTheHardOneAndNeverLowered) {
  constexpr rlim_t kMost = 65536;
  const rlimit before = FileLimit();
  rlimit low = before;
  low.rlim_cur = 64;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  RaiseFileLimit();
  const rlimit raised = FileLimit();
  EXPECT_EQ(raised.rlim_cur, std::min(before.rlim_max, kMost));
  EXPECT_EQ(raised.rlim_max, before.rlim_max);
  rlimit high = before;
  high.rlim_cur = before.rlim_max;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &high), 0);
  RaiseFileLimit();
  EXPECT_EQ(FileLimit().rlim_cur, before.rlim_max);
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
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
