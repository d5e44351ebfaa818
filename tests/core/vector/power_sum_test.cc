#include "core/vector/power_sum.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
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
  EXPECT_DOUBLE_EQ(PowerSums(flat, {{1, 2}}, 3).front(), std::cbrt(9));
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
  EXPECT_EQ(NormOfPowerSums({4, 5}, 1), 9);
  EXPECT_EQ(NormOfPowerSums({4, 5}, 2), 3);
  EXPECT_EQ(NormOfPowerSums({9, 4}, kInfinity), 9);
  EXPECT_DOUBLE_EQ(NormOfPowerSums({3, 4, 5}, 3), 6);
  EXPECT_EQ(NormOfPowerSums({}, 3), 0);
  const double nan = std::nan("");
  for (const double p : {0.5, 1.0, 2.0, 3.0, kInfinity}) {
    EXPECT_TRUE(std::isnan(NormOfPowerSums({nan, kInfinity}, p))) << p;
    EXPECT_TRUE(std::isnan(NormOfPowerSums({1, nan}, p))) << p;
    EXPECT_EQ(NormOfPowerSums({1, kInfinity}, p), kInfinity) << p;
  }
}

// The powers are 1e360, and 0.
TEST(PowerSumsTest, PowersMayBeMoreThanADoubleHolds) {
  const at::Tensor large = at::full({4}, 1e36, at::kFloat);
  const double element = static_cast<double>(static_cast<float>(1e36));
  EXPECT_NEAR(PowerSums(large, {{0, 4}}, 10).front() / element,
              std::pow(4, 0.1), 1e-12);
  EXPECT_EQ(PowerSums(at::full({4}, 2., at::kFloat), {{0, 4}}, 1e308).front(),
            2);
  // Half precision goes through LibTorch, which must not square in float.
  const at::Tensor halves = at::full({4}, 0x1p100, at::kBFloat16);
  for (const double p : {3.0, 10.0, 1e308}) {
    EXPECT_NEAR(PowerSums(halves, {{0, 4}}, p).front() / 0x1p100,
                std::pow(4, 1 / p), 1e-12)
        << p;
  }
  EXPECT_EQ(PowerSums(halves, {{0, 4}}, 2).front(), 0x1p202);
  EXPECT_EQ(PowerSums(at::full({3}, 0., at::kBFloat16), {{0, 3}}, 3).front(),
            0);
}

// 1500 elements of 1e-20: 1500^100 is more than a double holds, and that times
// 1e-20 is not.
TEST(PowerSumsTest, ARootThatIsTooLargeIsNoNormThatIs) {
  const at::Tensor small = at::full({1500}, 1e-20, at::kFloat);
  const double element = static_cast<double>(static_cast<float>(1e-20));
  const double norm = PowerSums(small, {{0, 1500}}, 0.01).front();
  EXPECT_NEAR(std::log(norm), std::log(element) + 100 * std::log(1500), 1e-9);
}

// 2000 elements of 1: 2000^100.
TEST(PowerSumsTest, ANormThatIsTooLargeIsToldFromElementsThatAreNotFinite) {
  const at::Tensor ones = at::full({2000}, 1., at::kFloat);
  const double norm = PowerSums(ones, {{0, 2000}}, 0.01).front();
  EXPECT_EQ(norm, std::numeric_limits<double>::max());
  EXPECT_EQ(NormOfPowerSums({norm}, 0.01), kInfinity);
  EXPECT_TRUE(NormOverflows({norm}, 0.01));
  EXPECT_TRUE(NormOverflows({1e308, 1e308}, 0.5));
  EXPECT_FALSE(NormOverflows({1, kInfinity}, 0.5));
  EXPECT_FALSE(NormOverflows({1, std::nan("")}, 0.5));
  EXPECT_FALSE(NormOverflows({1, 2}, 0.5));
}

}  // namespace
}  // namespace tandem
