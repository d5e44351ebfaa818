// Draws are counted by thread.

#include "core/random/draw_count.h"

#include <gtest/gtest.h>

#include <thread>

namespace tandem::draw_count_test {
namespace {

TEST(DrawCountTest, CountsTheThreadsOwn) {
  const int64_t before = CountedDraws();
  CountDraw();
  CountDraw();
  EXPECT_EQ(CountedDraws(), before + 2);
  std::thread([] {
    EXPECT_EQ(CountedDraws(), 0);
    CountDraw();
  }).join();
  EXPECT_EQ(CountedDraws(), before + 2);
}

}  // namespace
}  // namespace tandem::draw_count_test
