#include "core/vector/sum.h"

#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "core/vector/multiply_and_find_inf.h"

namespace tandem::sum_test {
namespace {

using c10::ScalarType;

// Around the vectors' and the blocks' ends.
constexpr int64_t kSizes[] = {0, 1, 2, 7, 8, 31, 997, 2048, 4099};

template <typename T>
using Arrays = std::vector<std::vector<T>>;

// Sums `terms` into the first of them, as ranks do in place.
template <typename T>
std::vector<T> InPlace(const Reduction& reduction, Arrays<T> terms) {
  std::vector<const void*> in;
  std::vector<void*> out;
  for (std::vector<T>& term : terms) {
    in.push_back(term.data());
    out.push_back(term.data());
  }
  const absl::StatusOr<VectorSum> sum = VectorSum::Make(reduction);
  EXPECT_TRUE(sum.ok()) << sum.status();
  sum->Run(in, absl::MakeSpan(out), static_cast<int64_t>(terms[0].size()));
  for (const std::vector<T>& term : terms) {
    // data() of an empty vector may be null, which memcmp does not take.
    EXPECT_TRUE(term.empty() || std::memcmp(term.data(), terms[0].data(),
                                            term.size() * sizeof(T)) == 0)
        << "results differ";
  }
  return terms[0];
}

template <typename T>
Arrays<T> SomeTerms(int count, int64_t size) {
  Arrays<T> terms(count);
  for (int r = 0; r < count; ++r) {
    for (int64_t i = 0; i < size; ++i) {
      terms[r].push_back(
          static_cast<T>(static_cast<float>(std::sin(1.7 * i + r) * 3)));
    }
  }
  return terms;
}

template <typename T>
void ExpectBits(const std::vector<T>& got, const std::vector<T>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(std::memcmp(&got[i], &expected[i], sizeof(T)), 0)
        << "element " << i;
  }
}

// One number at a time, each step rounded.
template <typename T>
std::vector<T> OneByOne(const Arrays<T>& terms, double factor, double divisor) {
  std::vector<T> sums;
  for (size_t i = 0; i < terms[0].size(); ++i) {
    volatile T sum = 0;
    for (size_t r = 0; r < terms.size(); ++r) {
      volatile T term = terms[r][i];
      if (factor != 1) term = term * static_cast<T>(factor);
      sum = r == 0 ? term : static_cast<T>(sum + term);
    }
    if (divisor != 1) sum = sum / static_cast<T>(divisor);
    sums.push_back(static_cast<T>(sum));
  }
  return sums;
}

template <typename T>
void ExpectSumsInOrder(ScalarType dtype) {
  for (const int ranks : {1, 2, 3, 7}) {
    for (const int64_t size : kSizes) {
      for (const double factor : {1.0, 1.0 / 3}) {
        for (const double divisor : {1.0, 7.0}) {
          Reduction reduction;
          reduction.dtype = dtype;
          reduction.factor = factor;
          reduction.divisor = divisor;
          const Arrays<T> terms = SomeTerms<T>(ranks, size);
          ExpectBits(InPlace(reduction, terms),
                     OneByOne(terms, factor, divisor));
        }
      }
    }
  }
}

TEST(VectorSumTest, FloatsAreSummedInOrderEachStepRounded) {
  ExpectSumsInOrder<float>(ScalarType::Float);
}

TEST(VectorSumTest, DoublesAreSummedInOrderEachStepRounded) {
  ExpectSumsInOrder<double>(ScalarType::Double);
}

template <typename T>
void ExpectHalfIsRoundedOnce(ScalarType dtype) {
  for (const int ranks : {1, 2, 3, 7}) {
    for (const int64_t size : kSizes) {
      for (const double factor : {1.0, 1.0 / 3}) {
        Reduction reduction;
        reduction.dtype = dtype;
        reduction.factor = factor;
        const Arrays<T> terms = SomeTerms<T>(ranks, size);
        std::vector<T> expected;
        for (int64_t i = 0; i < size; ++i) {
          volatile float sum = 0;
          for (int r = 0; r < ranks; ++r) {
            T term = terms[r][i];
            if (factor != 1) term = T(float(term) * float(factor));
            sum = r == 0 ? float(term) : sum + float(term);
          }
          expected.push_back(T(float(sum)));
        }
        ExpectBits(InPlace(reduction, terms), expected);
      }
    }
  }
}

TEST(VectorSumTest, HalvesAreSummedInFloatAndRoundedOnce) {
  ExpectHalfIsRoundedOnce<c10::Half>(ScalarType::Half);
}

TEST(VectorSumTest, BFloat16sAreSummedInFloatAndRoundedOnce) {
  ExpectHalfIsRoundedOnce<c10::BFloat16>(ScalarType::BFloat16);
}

TEST(VectorSumTest, HalfKeepsInfinityAndNan) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const int64_t size : {1, 9}) {
    Reduction reduction;
    reduction.dtype = ScalarType::Half;
    const Arrays<c10::Half> terms = {std::vector<c10::Half>(size, 65504.0F),
                                     std::vector<c10::Half>(size, 65504.0F)};
    EXPECT_EQ(float(InPlace(reduction, terms).back()), infinity);
    const Arrays<c10::Half> opposite = {
        std::vector<c10::Half>(size, infinity),
        std::vector<c10::Half>(size, -infinity)};
    EXPECT_TRUE(std::isnan(float(InPlace(reduction, opposite).back())));
  }
}

// A product that is not rounded before the sum gives another result here.
TEST(VectorSumTest, ProductsAreRoundedBeforeTheSum) {
  const float x = 1 + std::ldexp(1.0F, -12);
  Reduction reduction;
  reduction.factor = x;
  for (const int64_t size : {1, 64}) {
    const Arrays<float> terms = {std::vector<float>(size, x),
                                 std::vector<float>(size, -1.0F)};
    volatile float product = x * x;
    const float expected = product + -1.0F * x;
    EXPECT_EQ(InPlace(reduction, terms).back(), expected);
  }
}

template <typename T>
void ExpectKinds(ScalarType dtype) {
  const std::vector<T> a = {5, 3, 12, 0, 1};
  const std::vector<T> b = {2, 3, 10, 7, 1};
  const std::vector<T> c = {1, 9, 6, 1, 1};
  const auto reduce = [&](ReduceKind kind) {
    Reduction reduction;
    reduction.dtype = dtype;
    reduction.kind = kind;
    return InPlace(reduction, Arrays<T>{a, b, c});
  };
  EXPECT_EQ(reduce(ReduceKind::kSum), (std::vector<T>{8, 15, 28, 8, 3}));
  EXPECT_EQ(reduce(ReduceKind::kMin), (std::vector<T>{1, 3, 6, 0, 1}));
  EXPECT_EQ(reduce(ReduceKind::kMax), (std::vector<T>{5, 9, 12, 7, 1}));
  // Not all fit into a byte.
  EXPECT_EQ(reduce(ReduceKind::kProduct),
            (std::vector<T>{10, 81, static_cast<T>(720), 0, 1}));
  if (!std::is_integral_v<T>) return;
  EXPECT_EQ(reduce(ReduceKind::kBitAnd), (std::vector<T>{0, 1, 0, 0, 1}));
  EXPECT_EQ(reduce(ReduceKind::kBitOr), (std::vector<T>{7, 11, 14, 7, 1}));
  EXPECT_EQ(reduce(ReduceKind::kBitXor), (std::vector<T>{6, 9, 0, 6, 1}));
}

TEST(VectorSumTest, EveryKindOfEveryDtype) {
  ExpectKinds<float>(ScalarType::Float);
  ExpectKinds<double>(ScalarType::Double);
  ExpectKinds<uint8_t>(ScalarType::Byte);
  ExpectKinds<int8_t>(ScalarType::Char);
  ExpectKinds<int16_t>(ScalarType::Short);
  ExpectKinds<int32_t>(ScalarType::Int);
  ExpectKinds<int64_t>(ScalarType::Long);
}

TEST(VectorSumTest, IntegersWrapAround) {
  Reduction reduction;
  reduction.dtype = ScalarType::Int;
  constexpr int32_t most = std::numeric_limits<int32_t>::max();
  EXPECT_EQ(InPlace(reduction, Arrays<int32_t>{{most}, {1}})[0],
            std::numeric_limits<int32_t>::min());
  reduction.dtype = ScalarType::Short;
  reduction.kind = ReduceKind::kProduct;
  EXPECT_EQ(InPlace(reduction, Arrays<int16_t>{{-32768}, {-32768}})[0], 0);
}

TEST(VectorSumTest, BoolsAreBits) {
  Reduction reduction;
  reduction.dtype = ScalarType::Bool;
  const Arrays<uint8_t> terms = {{0, 0, 1, 1}, {0, 1, 0, 1}};
  EXPECT_EQ(InPlace(reduction, terms), (std::vector<uint8_t>{0, 1, 1, 1}));
  reduction.kind = ReduceKind::kProduct;
  EXPECT_EQ(InPlace(reduction, terms), (std::vector<uint8_t>{0, 0, 0, 1}));
}

TEST(VectorSumTest, WhatDoesNotGoTogetherIsRefused) {
  const auto refused = [](ScalarType dtype, ReduceKind kind, double factor) {
    Reduction reduction;
    reduction.dtype = dtype;
    reduction.kind = kind;
    reduction.factor = factor;
    return absl::IsInvalidArgument(VectorSum::Make(reduction).status());
  };
  EXPECT_TRUE(refused(ScalarType::Float, ReduceKind::kBitAnd, 1));
  EXPECT_TRUE(refused(ScalarType::Half, ReduceKind::kBitOr, 1));
  EXPECT_TRUE(refused(ScalarType::Int, ReduceKind::kSum, 2));
  EXPECT_TRUE(refused(ScalarType::Float, ReduceKind::kMax, 2));
  EXPECT_TRUE(refused(ScalarType::ComplexFloat, ReduceKind::kSum, 1));
  EXPECT_FALSE(refused(ScalarType::Half, ReduceKind::kSum, 2));
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// None, one, around a vector, primes, and more than one block of threads.
const std::vector<int64_t> kVectorSizes = {
    0, 1, 2, 7, 15, 16, 17, 31, 64, 65, 97, 101, 1009, 4096, 32768, 70001};

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
  const at::Tensor found_numbers = found.nan_to_num(0, kInfinity, -kInfinity);
  const at::Tensor expected_numbers =
      expected.nan_to_num(0, kInfinity, -kInfinity);
  EXPECT_TRUE(found_numbers.equal(expected_numbers));
}

class MultiplyAndFindInfTest : public testing::TestWithParam<at::ScalarType> {};

TEST_P(MultiplyAndFindInfTest, IsLibTorchs) {
  for (const int64_t size : kVectorSizes) {
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
  for (const int64_t size : kVectorSizes) {
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
}  // namespace tandem::sum_test
