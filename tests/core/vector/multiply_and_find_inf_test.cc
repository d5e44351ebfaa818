#include "core/vector/multiply_and_find_inf.h"

#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

namespace tandem::multiply_and_find_inf_test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// None, one, around a vector, primes, and more than one block of threads.
const std::vector<int64_t> kSizes = {0,  1,  2,  7,   15,   16,   17,    31,
                                     64, 65, 97, 101, 1009, 4096, 32768, 70001};

bool ByLibTorch(const std::vector<at::Tensor>& parts, float factor) {
  at::Tensor found = at::zeros({}, at::kFloat);
  at::_amp_foreach_non_finite_check_and_unscale_(
      parts, found, at::full({}, factor, at::kFloat));
  return found.item<float>() != 0;
}

// Expects NaNs in the same places, whatever their bits, and else the same
// values.
void ExpectSame(const at::Tensor& found, const at::Tensor& expected) {
  ASSERT_TRUE(found.isnan().equal(expected.isnan()));
  const at::Tensor mine = found.nan_to_num(0, kInfinity, -kInfinity);
  const at::Tensor its = expected.nan_to_num(0, kInfinity, -kInfinity);
  EXPECT_TRUE(mine.equal(its));
}

class MultiplyAndFindInfTest : public testing::TestWithParam<at::ScalarType> {};

TEST_P(MultiplyAndFindInfTest, IsLibTorchs) {
  for (const int64_t size : kSizes) {
    for (const float factor : {1.0F, 0.5F, 0.1F, 1.0F / 65536, 3e-39F, 1e30F}) {
      const at::Tensor x = at::randn({size}).to(GetParam());
      const at::Tensor other = x.clone();
      EXPECT_FALSE(MultiplyAndFindInf({x}, factor)) << size;
      if (size > 0) {
        EXPECT_FALSE(ByLibTorch({other}, factor));
      }
      ExpectSame(x, other);
    }
  }
}

TEST_P(MultiplyAndFindInfTest, FindsOneWhereverItIs) {
  for (const int64_t size : kSizes) {
    for (const int64_t place : {int64_t{0}, size / 3, size - 1}) {
      if (size == 0) continue;
      for (const double bad : {kInfinity, -kInfinity, kNan}) {
        const at::Tensor x = at::randn({size}).to(GetParam());
        x[place] = bad;
        const at::Tensor other = x.clone();
        EXPECT_TRUE(MultiplyAndFindInf({x}, 0.25F)) << size << " " << place;
        EXPECT_TRUE(ByLibTorch({other}, 0.25F));
        ExpectSame(x, other);
      }
    }
  }
}

TEST_P(MultiplyAndFindInfTest, LooksAtAllParts) {
  for (size_t bad = 0; bad < 3; ++bad) {
    std::vector<at::Tensor> parts;
    for (const int64_t size : {3, 17, 5}) {
      parts.push_back(at::full({size}, 8, GetParam()));
    }
    parts[bad][1] = kInfinity;
    EXPECT_TRUE(MultiplyAndFindInf(parts, 0.5F)) << bad;
    for (const at::Tensor& part : parts) EXPECT_EQ(part[0].item<float>(), 4);
  }
  EXPECT_FALSE(MultiplyAndFindInf({}, 2));
}

// Denormals and the greatest numbers are finite.
TEST(MultiplyAndFindInfEdgesTest, TakesWhatIsFiniteForFinite) {
  using Limits = std::numeric_limits<float>;
  const at::Tensor x = at::full({37}, Limits::max(), at::kFloat);
  x[3] = -Limits::max();
  x[36] = Limits::denorm_min();
  EXPECT_FALSE(MultiplyAndFindInf({x}, 1));
  EXPECT_EQ(x[36].item<float>(), Limits::denorm_min());
  // It was before, though the product is not.
  EXPECT_FALSE(MultiplyAndFindInf({x}, 2));
  EXPECT_EQ(x[3].item<double>(), -kInfinity);
}

INSTANTIATE_TEST_SUITE_P(Dtypes, MultiplyAndFindInfTest,
                         testing::Values(at::kFloat, at::kDouble, at::kHalf,
                                         at::kBFloat16),
                         [](const auto& info) {
                           return std::string(c10::toString(info.param));
                         });

}  // namespace
}  // namespace tandem::multiply_and_find_inf_test
