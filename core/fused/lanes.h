// Floats side by side, whatever the width of the machine's vectors: for sums
// whose bits are the same on all of them. Element i goes to lane i % 64, and
// lanes are added in a binary tree.

#ifndef TANDEM_CORE_FUSED_LANES_H_
#define TANDEM_CORE_FUSED_LANES_H_

#include <c10/util/BFloat16.h>

#include <cstdint>
#include <cstring>

#include "core/fused/element.h"
#include "core/vector/dispatch.h"

// Part of its caller, as what TANDEM_INLINE marks, for a lambda: between its
// parameters and its body.
#define TANDEM_INLINE_LAMBDA __attribute__((always_inline))

namespace tandem {

constexpr int64_t kLanes = 16;

using Lanes = float __attribute__((vector_size(kLanes * sizeof(float))));

TANDEM_INLINE void LoadLanes(const float* from, Lanes& to) {
  std::memcpy(&to, from, sizeof(to));
}

TANDEM_INLINE void LoadLanes(const c10::BFloat16* from, Lanes& to) {
  using Halves = uint16_t __attribute__((vector_size(kLanes * 2)));
  using Words = uint32_t __attribute__((vector_size(kLanes * 4)));
  Halves halves;
  std::memcpy(&halves, from, sizeof(halves));
  const Words words = __builtin_convertvector(halves, Words) << 16;
  std::memcpy(&to, &words, sizeof(to));
}

// Several at once, so that no sum waits for the one before.
constexpr int64_t kSums = 4;
constexpr int64_t kStride = kSums * kLanes;

class LaneSum {
 public:
  // Terms of elements that are k * kLanes behind a multiple of kStride.
  TANDEM_INLINE void Add(int64_t k, const Lanes& terms) { sums_[k] += terms; }
  // The term of element i.
  TANDEM_INLINE void AddOne(int64_t i, float term) {
    sums_[i % kStride / kLanes][i % kLanes] += term;
  }
  TANDEM_INLINE float Total() const {
    const Lanes sum = (sums_[0] + sums_[1]) + (sums_[2] + sums_[3]);
    float lanes[kLanes];
    std::memcpy(lanes, &sum, sizeof(lanes));
    for (int64_t width = kLanes / 2; width > 0; width /= 2) {
      for (int64_t i = 0; i < width; ++i) lanes[i] += lanes[i + width];
    }
    return lanes[0];
  }

 private:
  Lanes sums_[kSums] = {};
};

// The sum of what `term` makes of the elements of x, [n], as floats and as
// Lanes alike.
template <typename T, typename Term>
TANDEM_INLINE float SumOfTerms(const T* x, int64_t n, const Term& term) {
  LaneSum sum;
  int64_t i = 0;
  for (; i + kStride <= n; i += kStride) {
    TANDEM_UNROLL_4
    for (int64_t k = 0; k < kSums; ++k) {
      Lanes lanes;
      LoadLanes(x + i + k * kLanes, lanes);
      sum.Add(k, term(lanes));
    }
  }
  for (; i < n; ++i) sum.AddOne(i, term(Widen(x[i])));
  return sum.Total();
}

}  // namespace tandem

#endif  // TANDEM_CORE_FUSED_LANES_H_
