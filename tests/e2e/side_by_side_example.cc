// Tests for side_by_side_test: two that wait for each other, and three that
// fail, each in its own way.

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <string>
#include <thread>

#include "gtest/gtest.h"

namespace {

// Half a minute at most.
bool Meet(const std::string& mine, const std::string& other) {
  std::ofstream(testing::TempDir() + "/" + mine) << "here";
  for (int i = 0; i < 3000; ++i) {
    if (std::ifstream(testing::TempDir() + "/" + other)) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

TEST(Meeting, One) { EXPECT_TRUE(Meet("one", "two")); }
TEST(Meeting, Two) { EXPECT_TRUE(Meet("two", "one")); }

class Number : public testing::TestWithParam<int> {};
TEST_P(Number, IsSmall) { EXPECT_LT(GetParam(), 3) << "said by a test"; }
INSTANTIATE_TEST_SUITE_P(Numbers, Number, testing::Values(1, 2, 3));

TEST(End, BySignal) { kill(getpid(), SIGKILL); }
TEST(End, ByExit) { _exit(0); }

}  // namespace
