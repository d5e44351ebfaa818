#include "tools/bench/process/progress.h"

#include <chrono>
#include <string>

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace tandem::progress_test {
namespace {

TEST(ProgressLineTest, TheFirstHasNoEstimate) {
  EXPECT_EQ(ProgressLine(1, 3, absl::Seconds(1), "loads"), "1 of 3: loads");
  EXPECT_EQ(ProgressLine(1, 1, absl::ZeroDuration(), ""), "1 of 1: ");
}

TEST(ProgressLineTest, WhatIsLeftTakesAsLongAsWhatIsDone) {
  EXPECT_EQ(ProgressLine(3, 9, absl::Seconds(120), "saves"),
            "3 of 9, about 7 min left: saves");
  EXPECT_EQ(ProgressLine(9, 9, absl::Seconds(320), "saves"),
            "9 of 9, about 40 s left: saves");
}

TEST(BenchProgressTest, CountsWhatBegins) {
  const BenchProgress::Clock::time_point start;
  BenchProgress progress(2, start);
  testing::internal::CaptureStderr();
  progress.Begin("one", start);
  progress.Begin("other", start + std::chrono::seconds(40));
  const std::string err = testing::internal::GetCapturedStderr();
  EXPECT_EQ(err, "1 of 2: one\n2 of 2, about 40 s left: other\n");
}

}  // namespace
}  // namespace tandem::progress_test
