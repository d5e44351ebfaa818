#include "gtest/gtest.h"
#include "tools/bench/safety/suite.h"

namespace tandem::flight_cost_test {
namespace {

TEST(FlightCostTest, AnEntryTakesSomeTimeOnOneThreadAndOnSeveral) {
  for (const int threads : {1, 3}) {
    EXPECT_GT(NanosecondsOfFlightEntry(threads), 0) << threads;
  }
}

}  // namespace
}  // namespace tandem::flight_cost_test
