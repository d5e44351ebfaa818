#include "core/instrument/clock_offset.h"

#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <vector>

namespace tandem {
namespace {

using std::chrono::microseconds;
using std::chrono::nanoseconds;

ClockSample::Clock::time_point At(int64_t time) {
  return ClockSample::Clock::time_point(microseconds(time));
}

TEST(ClockOffsetTest, IsExactWhereBothWaysTakeAsLong) {
  const ClockOffset offset =
      EstimateClockOffset({{At(100), At(5110), At(120)}});
  EXPECT_EQ(offset.offset, microseconds(5000));
  EXPECT_EQ(offset.uncertainty, microseconds(10));
}

TEST(ClockOffsetTest, TheShortestRoundTripDecides) {
  const ClockOffset offset = EstimateClockOffset({
      {At(0), At(-1000 + 90), At(100)},
      {At(200), At(-1000 + 203), At(206)},
      {At(300), At(-1000 + 300), At(400)},
  });
  EXPECT_EQ(offset.offset, microseconds(-1000));
  EXPECT_EQ(offset.uncertainty, microseconds(3));
}

// Whatever each way takes, the truth is no further away than it says.
TEST(ClockOffsetTest, IsNoMoreWrongThanItSays) {
  std::mt19937 random(7);
  std::uniform_int_distribution<int64_t> offsets(-1000000000, 1000000000);
  std::uniform_int_distribution<int64_t> delays(1, 5000);
  for (int i = 0; i < 200; ++i) {
    const int64_t truth = offsets(random);
    std::vector<ClockSample> samples;
    int64_t now = 1000;
    int64_t shortest = 1000000;
    for (int trip = 0; trip < 5; ++trip) {
      const int64_t there = delays(random);
      const int64_t back = delays(random);
      samples.push_back(
          {At(now), At(now + there + truth), At(now + there + back)});
      shortest = std::min(shortest, there + back);
      now += there + back;
    }
    const ClockOffset offset = EstimateClockOffset(samples);
    EXPECT_EQ(offset.uncertainty, nanoseconds(microseconds(shortest)) / 2);
    const nanoseconds error = offset.offset - microseconds(truth);
    EXPECT_LE(error < nanoseconds(0) ? -error : error, offset.uncertainty);
  }
}

}  // namespace
}  // namespace tandem
