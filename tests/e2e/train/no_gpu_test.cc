// --device=cuda where there is no GPU: one line that says what was found and
// what to do.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/e2e/train/runs.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

// Runs as on a machine without GPUs, whatever this one has.
ProgramResult RunWithoutGpus() {
  ProgramOptions options;
  options.environment["CUDA_VISIBLE_DEVICES"] = "";
  return RunProgram(kTrain, SmallJob({"--device=cuda"}), options);
}

TEST(NoGpuTest, IsOneLine) {
  const ProgramResult result = RunWithoutGpus();
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1)
      << result.err;
  EXPECT_EQ(result.err.rfind("train: --device=cuda: this ", 0), 0u)
      << result.err;
#ifdef TANDEM_CUDA
  EXPECT_THAT(result.err, HasSubstr("needs 1 device, and none were found: "));
  EXPECT_THAT(result.err, HasSubstr("//tools:doctor says more"));
#else
  EXPECT_THAT(result.err, HasSubstr("built without CUDA; build it with "
                                    "--config=cuda (docs/rehearsal.md)"));
#endif
}

}  // namespace
}  // namespace tandem
