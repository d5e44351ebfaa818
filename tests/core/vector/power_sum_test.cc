#include "core/vector/power_sum.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/sin.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace tandem {
namespace {

constexpr int kLanes = 16;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

double Term(double x, double p) { return p == 2 ? x * x : std::abs(x); }

// The order of power_sum.h's sums, one element after the other: sixteen lanes,
// their sum, and what is left.
template <typename T>
double InOrder(const T* x, int64_t n, double p) {
  double lanes[kLanes] = {};
  const int64_t whole = n / kLanes * kLanes;
  for (int64_t i = 0; i < whole; ++i) lanes[i % kLanes] += Term(x[i], p);
  double sum = 0;
  for (double lane : lanes) sum += lane;
  for (int64_t i = whole; i < n; ++i) sum += Term(x[i], p);
  return sum;
}

template <typename T>
void ExpectTheOrdersBits(at::ScalarType dtype) {
  const at::Tensor flat = at::sin(at::arange(1, 1001, dtype)).mul(1000);
  for (const double p : {1.0, 2.0}) {
    for (const int64_t n : {1, 15, 16, 17, 31, 64, 999}) {
      // From an odd place: vectors need not be aligned.
      const ElementRange range = {1, n};
      EXPECT_EQ(PowerSums(flat, {range}, p).front(),
                InOrder(flat.const_data_ptr<T>() + 1, n, p))
          << n << " elements, p = " << p;
    }
  }
}

TEST(PowerSumsTest, HaveTheBitsOfOneOrderWhateverTheVectors) {
  ExpectTheOrdersBits<float>(at::kFloat);
  ExpectTheOrdersBits<double>(at::kDouble);
}

TEST(PowerSumsTest, OfOtherPowers) {
  const at::Tensor flat = at::arange(-3, 4, at::kFloat);
  EXPECT_EQ(PowerSums(flat, {{0, 7}, {0, 1}}, kInfinity),
            (std::vector<double>{3, 3}));
  EXPECT_EQ(PowerSums(flat, {{1, 2}}, 3).front(), 9);
  const at::Tensor nan = flat.div(0);  // -inf, nan, inf
  for (const double p : {0.5, 1.0, 2.0, 3.0, kInfinity}) {
    EXPECT_TRUE(std::isnan(PowerSums(nan, {{0, 7}}, p).front())) << p;
  }
}

TEST(SquareSumsTest, AreThePowerSumsAsATensor) {
  const at::Tensor flat = at::sin(at::arange(1, 101, at::kFloat)).mul(1000);
  const std::vector<ElementRange> ranges = {{1, 17}, {64, 1}, {20, 40}};
  const std::vector<double> expected = PowerSums(flat, ranges, 2);
  const at::Tensor sums = SquareSums(flat, ranges);
  ASSERT_EQ(sums.scalar_type(), at::kDouble);
  ASSERT_EQ(sums.numel(), 3);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(sums[i].item<double>(), expected[static_cast<size_t>(i)]);
  }
}

TEST(PowerSumsTest, GiveNorms) {
  EXPECT_EQ(NormOfPowerSum(9, 1), 9);
  EXPECT_EQ(NormOfPowerSum(9, 2), 3);
  EXPECT_EQ(NormOfPowerSum(9, kInfinity), 9);
  EXPECT_DOUBLE_EQ(NormOfPowerSum(8, 3), 2);
}

}  // namespace
}  // namespace tandem
