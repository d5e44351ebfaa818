#include "core/fused/exponential.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "core/fused/element.h"
#include "core/vector/dispatch.h"

namespace tandem {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr double kUnit = 0x1p-23;

// From -100 to 100, close together.
std::vector<float> Places() {
  std::vector<float> places;
  for (int i = -1000000; i <= 1000000; ++i) {
    places.push_back(static_cast<float>(i) * 1e-4f);
  }
  return places;
}

template <float (*kFunction)(float)>
struct Loop {
  static TANDEM_INLINE void Body(float* out, const float* in, int64_t n) {
    for (int64_t i = 0; i < n; ++i) out[i] = kFunction(in[i]);
  }
};

TANDEM_INLINE float Exp(float x) { return Exponential(x); }
TANDEM_INLINE float Below(float x) { return NormalAt(x).below; }
TANDEM_INLINE float Density(float x) { return NormalAt(x).density; }
TANDEM_INLINE float ToHalfAndBack(float x) {
  return Widen(Narrow<c10::BFloat16>(x));
}

template <float (*kFunction)(float)>
std::vector<float> OnBaseline() {
  const std::vector<float> in = Places();
  const auto n = static_cast<int64_t>(in.size());
  std::vector<float> out(in.size());
  RunBaseline<Loop<kFunction>>(out.data(), in.data(), n);
  return out;
}

// What the instruction sets of this machine that are not the baseline give.
template <float (*kFunction)(float)>
void ExpectTheSameBitsOnAll() {
  const std::vector<float> in = Places();
  const auto n = static_cast<int64_t>(in.size());
  const std::vector<float> expected = OnBaseline<kFunction>();
  std::vector<float> out(in.size());
  const auto equal = [&] {
    return std::memcmp(out.data(), expected.data(), n * sizeof(float)) == 0;
  };
#if defined(__x86_64__)
  if (FindLevel() != Level::kBaseline) {
    RunAvx2<Loop<kFunction>>(out.data(), in.data(), n);
    EXPECT_TRUE(equal()) << "AVX2";
  }
  if (FindLevel() == Level::kAvx512) {
    out.assign(out.size(), 0);
    RunAvx512<Loop<kFunction>>(out.data(), in.data(), n);
    EXPECT_TRUE(equal()) << "AVX-512";
  }
#endif
}

TEST(ExponentialTest, IsWithinOneAndAHalfUnits) {
  const std::vector<float> in = Places();
  const std::vector<float> out = OnBaseline<Exp>();
  for (size_t i = 0; i < in.size(); ++i) {
    if (in[i] < -87 || in[i] > 88) continue;
    const double exact = std::exp(static_cast<double>(in[i]));
    ASSERT_NEAR(out[i], exact, 1.5 * kUnit * exact) << in[i];
  }
}

TEST(ExponentialTest, BeyondItsRange) {
  EXPECT_EQ(Exponential(-87.5f), 0);
  EXPECT_EQ(Exponential(-kInfinity), 0);
  EXPECT_EQ(Exponential(89), Exponential(88));
  EXPECT_EQ(Exponential(kInfinity), Exponential(88));
  EXPECT_EQ(Exponential(0), 1);
  EXPECT_TRUE(std::isnan(Exponential(NAN)));
}

TEST(ExponentialTest, Sigmoid) {
  for (float x : {-20.f, -1.f, 0.f, 0.3f, 5.f}) {
    const double exact = 1 / (1 + std::exp(-static_cast<double>(x)));
    EXPECT_NEAR(Sigmoid(x), exact, 3 * kUnit * exact) << x;
  }
  EXPECT_EQ(Sigmoid(kInfinity), 1);
}

TEST(ExponentialTest, TheNormalDistribution) {
  const std::vector<float> in = Places();
  const std::vector<float> below = OnBaseline<Below>();
  const std::vector<float> density = OnBaseline<Density>();
  for (size_t i = 0; i < in.size(); ++i) {
    const double x = in[i];
    if (std::abs(x) > 13) continue;
    // x^2 / 2 is rounded before it is an exponent.
    const double units = 4 + x * x / 2;
    const double exact = std::erfc(-x / std::sqrt(2.0)) / 2;
    ASSERT_NEAR(below[i], exact, units * kUnit * exact) << x;
    const double exact_density =
        std::exp(-x * x / 2) / std::sqrt(2 * std::acos(-1.0));
    ASSERT_NEAR(density[i], exact_density, units * kUnit * exact_density) << x;
  }
}

TEST(ExponentialTest, EachInstructionSetGivesTheSameBits) {
  ExpectTheSameBitsOnAll<Exp>();
  ExpectTheSameBitsOnAll<Below>();
  ExpectTheSameBitsOnAll<Density>();
  ExpectTheSameBitsOnAll<ToHalfAndBack>();
}

TEST(ElementTest, RoundsAsLibTorch) {
  const std::vector<float> in = Places();
  const std::vector<float> out = OnBaseline<ToHalfAndBack>();
  for (size_t i = 0; i < in.size(); ++i) {
    ASSERT_EQ(out[i], static_cast<float>(c10::BFloat16(in[i]))) << in[i];
  }
  EXPECT_EQ(ToHalfAndBack(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(ToHalfAndBack(NAN)));
}

}  // namespace
}  // namespace tandem
