// A device's work is captured as long as its mark lives.

#include "core/device/capture_mark.h"

#include <gtest/gtest.h>

namespace tandem::capture_mark_test {
namespace {

TEST(CaptureMarkTest, IsOfOneDevice) {
  const c10::Device first(c10::kCUDA, 0);
  const c10::Device second(c10::kCUDA, 1);
  EXPECT_FALSE(WorkIsCaptured(first));
  {
    const CaptureMark mark(first);
    EXPECT_TRUE(WorkIsCaptured(first));
    EXPECT_FALSE(WorkIsCaptured(second));
    const CaptureMark other(second);
    EXPECT_TRUE(WorkIsCaptured(second));
  }
  EXPECT_FALSE(WorkIsCaptured(first));
  EXPECT_FALSE(WorkIsCaptured(second));
}

}  // namespace
}  // namespace tandem::capture_mark_test
