#include "tests/models/rounding.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "gtest/gtest.h"

namespace tandem::rounding_test {
namespace {

TEST(Rounding, UnitsAreTheDistanceToTheNextNumber) {
  EXPECT_EQ(UnitAtOne(at::kFloat), std::numeric_limits<float>::epsilon());
  EXPECT_EQ(UnitAtOne(at::kDouble), std::numeric_limits<double>::epsilon());
  EXPECT_EQ(UnitInLastPlace(at::kHalf, 1.99), 1.0 / 1024);
  EXPECT_EQ(UnitInLastPlace(at::kHalf, 0.72), 1.0 / 2048);
  EXPECT_EQ(UnitInLastPlace(at::kBFloat16, 0.5), 1.0 / 256);
  EXPECT_EQ(UnitInLastPlace(at::kBFloat16, 4), 1.0 / 32);
  const float next = std::nextafter(0.3f, 1.0f);
  EXPECT_EQ(UnitInLastPlace(at::kFloat, 0.3), double{next} - double{0.3f});
}

// Sums of 256 numbers of [0, 1 / 256), forward and backward.
TEST(Rounding, ToleranceHoldsForSumsInAnotherOrderAndForLittleElse) {
  constexpr int kTerms = 256;
  constexpr int kSums = 10000;
  const double tolerance = RoundingTolerance(at::kFloat, kTerms, 1);
  double worst = 0;
  uint32_t state = 1;
  for (int sum = 0; sum < kSums; ++sum) {
    float terms[kTerms];
    for (float& term : terms) {
      state = state * 1664525 + 1013904223;
      term = static_cast<float>(state >> 8) / (1 << 24) / kTerms;
    }
    float forward = 0;
    float backward = 0;
    for (int i = 0; i < kTerms; ++i) forward += terms[i];
    for (int i = kTerms; i-- > 0;) backward += terms[i];
    worst = std::max(worst, std::abs(double{forward} - double{backward}));
  }
  EXPECT_LT(worst, tolerance);
  EXPECT_GT(worst, tolerance / 50);
}

}  // namespace
}  // namespace tandem::rounding_test
