// Half precision to float and back, in arrays.

#ifndef TANDEM_CORE_VECTOR_HALVES_H_
#define TANDEM_CORE_VECTOR_HALVES_H_

#include <c10/core/ScalarType.h>

#include <cstdint>

namespace tandem {

// Half precision to float, and back, rounded to nearest even.
struct HalfLoops {
  void (*widen)(float* out, const void* in, int64_t count) = nullptr;
  void (*narrow)(void* out, const float* in, int64_t count) = nullptr;
};

// For kHalf and kBFloat16; null pointers for others.
HalfLoops FindHalfLoops(c10::ScalarType dtype);

}  // namespace tandem

#endif  // TANDEM_CORE_VECTOR_HALVES_H_
