#include "core/finite/finite_check.h"

#include <ATen/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>

namespace tandem::finite_check_test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(FiniteCheckTest, FindsEachKindAnywhere) {
  EXPECT_TRUE(IsFinite(at::zeros({3, 7})));
  EXPECT_TRUE(IsFinite(at::empty({0})));
  for (const float bad : {kNan, kInfinity, -kInfinity}) {
    for (const int64_t at : {0, 10, 20}) {
      at::Tensor values = at::zeros({21});
      values[at] = bad;
      EXPECT_FALSE(IsFinite(values));
      EXPECT_FALSE(IsFinite(values.to(at::kBFloat16)));
    }
  }
  EXPECT_TRUE(
      IsFinite(at::zeros({1}).fill_(std::numeric_limits<float>::max())));
}

TEST(FiniteCheckTest, CountsAndSaysWhereTheFirstIs) {
  at::Tensor values = at::zeros({2, 3, 5});
  values[1][0][2] = -kInfinity;
  values[1][2][4] = kNan;
  values[0][2][1] = kNan;
  EXPECT_EQ(CountNonfinite(values),
            "2 NaN and 1 infinite of 30 values, the first at [0, 2, 1] (nan)");
}

TEST(FiniteCheckTest, StridesDoNotMatter) {
  at::Tensor values = at::zeros({3, 2}).t();
  values[1][2] = kInfinity;
  EXPECT_EQ(CountNonfinite(values),
            "0 NaN and 1 infinite of 6 values, the first at [1, 2] (inf)");
}

TEST(FiniteCheckTest, ThrowsWhatItIsTold) {
  EXPECT_THROW(ThrowNonfinite("layer a"), std::out_of_range);
}

}  // namespace
}  // namespace tandem::finite_check_test
