// The program: one line for what it cannot do, before anything is started.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/e2e/program.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

TEST(BenchGpuTest, SaysInOneLineThatThereIsNoGpu) {
  ProgramOptions options;
  options.environment["CUDA_VISIBLE_DEVICES"] = "";
  const ProgramResult result =
      RunProgram("tools/bench/bench", {"--suite=gpu"}, options);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1)
      << result.err;
  EXPECT_EQ(result.err.rfind("bench: --device=cuda: this ", 0), 0u)
      << result.err;
#ifdef TANDEM_CUDA
  EXPECT_THAT(result.err, HasSubstr("needs 1 device, and none were found: "));
#else
  EXPECT_THAT(result.err, HasSubstr("built without CUDA; build it with "
                                    "--config=cuda (docs/rehearsal.md)"));
#endif
}

TEST(BenchTest, SaysWhichSuitesThereAre) {
  const ProgramResult result =
      RunProgram("tools/bench/bench", {"--suite=all"}, ProgramOptions());
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.err,
            "bench: --suite: 'all': expected one of ddp, gpt, gpu, job, fsdp, "
            "safety, hybrid, tensor and 5 more\n");
}

TEST(BenchTest, RefusesAFlagOfAnotherSuite) {
  const ProgramResult result =
      RunProgram("tools/bench/bench", {"--suite=checkpoint", "--ranks=3"},
                 ProgramOptions());
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.err,
            "bench: --ranks=3 was given, but --suite=checkpoint does not take "
            "it: leave it out\n");
}

}  // namespace
}  // namespace tandem
