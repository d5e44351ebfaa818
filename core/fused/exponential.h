// Exponential function and what is made of it, as straight code without
// branches or calls, so that loops over it become vector instructions: for the
// loops of this folder.
//
// The same bits on every instruction set, if compiled with -ffp-contract=off.
// A NaN gives a NaN.

#ifndef TANDEM_CORE_FUSED_EXPONENTIAL_H_
#define TANDEM_CORE_FUSED_EXPONENTIAL_H_

#include <cstdint>
#include <cstring>

#include "core/vector/dispatch.h"

namespace tandem {

// e^x within 1.5 units in the last place for x in [-87, 88]; below it is 0, and
// above e^88.
TANDEM_INLINE float Exponential(float x) {
  constexpr float kLeast = -87;
  constexpr float kGreatest = 88;
  constexpr float kLog2E = 1.44269504f;
  // ln 2 in two parts, the first of which has zeros at the end: its products
  // with small whole numbers are exact.
  constexpr float kLn2High = 0.693359375f;
  constexpr float kLn2Low = -2.12194440e-4f;
  // To add it rounds to a whole number, which is then in the lowest bits.
  constexpr float kRound = 12582912;  // 1.5 * 2^23
  const float bound = x < kLeast ? kLeast : x;
  const float in_range = bound > kGreatest ? kGreatest : bound;
  const float rounded = in_range * kLog2E + kRound;
  const float whole = rounded - kRound;
  const float r = (in_range - whole * kLn2High) - whole * kLn2Low;
  // (e^r - 1 - r) / r^2 for |r| <= ln 2 / 2, minimax (3e-9 of e^r).
  float p = 1.38144649e-3f;
  p = p * r + 8.36878084e-3f;
  p = p * r + 4.16683927e-2f;
  p = p * r + 1.66665196e-1f;
  p = p * r + 0.49999994f;
  const float fraction = (p * r * r + r) + 1;
  int32_t bits;
  std::memcpy(&bits, &rounded, sizeof(bits));
  // The low bits alone of `whole` become the exponent.
  const auto exponent = static_cast<uint32_t>(bits - 0x4B400000 + 127) << 23;
  float scale;
  std::memcpy(&scale, &exponent, sizeof(scale));
  return x < kLeast ? 0 : fraction * scale;
}

// 1 / (1 + e^-x).
TANDEM_INLINE float Sigmoid(float x) { return 1 / (1 + Exponential(-x)); }

// The standard normal distribution at x: its density, and how much of it lies
// below x.
struct Normal {
  float density;
  float below;
};

// Both within a few units in the last place of the smaller of what lies below
// and above x.
TANDEM_INLINE Normal NormalAt(float x) {
  constexpr float kInverseSqrt2Pi = 0.398942280f;
  const float magnitude = x < 0 ? -x : x;
  const float half_square = x * x * 0.5f;
  const float exponential = Exponential(-half_square);
  // What lies beyond |x| is e^(-x^2/2) t q(t) with t = 1 / (1 + 0.35 |x|);
  // minimax for |x| <= 14 (3e-8).
  const float t = 1 / (1 + 0.35f * magnitude);
  float q = -2.91461386e-2f;
  q = q * t + 1.43972710e-1f;
  q = q * t - 2.55716324e-1f;
  q = q * t + 1.59176499e-1f;
  q = q * t - 2.31114179e-2f;
  q = q * t + 1.05508663e-1f;
  q = q * t + 1.19832702e-1f;
  q = q * t + 1.39861897e-1f;
  q = q * t + 1.39621407e-1f;
  const float beyond = exponential * (t * q);
  return {exponential * kInverseSqrt2Pi, x < 0 ? beyond : 1 - beyond};
}

}  // namespace tandem

#endif  // TANDEM_CORE_FUSED_EXPONENTIAL_H_
