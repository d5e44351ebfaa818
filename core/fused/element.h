// Elements of arrays as the loops of this folder compute with them: floats,
// whatever they are kept as.

#ifndef TANDEM_CORE_FUSED_ELEMENT_H_
#define TANDEM_CORE_FUSED_ELEMENT_H_

#include <c10/core/ScalarType.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <cstring>

#include "core/vector/dispatch.h"

namespace tandem {

TANDEM_INLINE float Widen(float x) { return x; }

TANDEM_INLINE float Widen(c10::BFloat16 x) {
  const uint32_t bits = uint32_t{x.x} << 16;
  float wide;
  std::memcpy(&wide, &bits, sizeof(wide));
  return wide;
}

// Rounds to the nearest, of two that are as near to the even one; a NaN stays
// one.
template <typename T>
TANDEM_INLINE T Narrow(float x);

template <>
TANDEM_INLINE float Narrow<float>(float x) {
  return x;
}

template <>
TANDEM_INLINE c10::BFloat16 Narrow<c10::BFloat16>(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  const uint32_t rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
  c10::BFloat16 narrow;
  narrow.x = static_cast<uint16_t>(x != x ? 0x7FC0 : rounded);
  return narrow;
}

// Calls call(T()) with the type of such elements; c10::Error, which names the
// operator, for others.
template <typename Call>
void WithElementType(const char* name, c10::ScalarType dtype,
                     const Call& call) {
  if (dtype == c10::ScalarType::Float) return call(float());
  if (dtype == c10::ScalarType::BFloat16) return call(c10::BFloat16());
  TORCH_CHECK(false, name, " takes float or bfloat16, but ", dtype,
              " was given");
}

}  // namespace tandem

#endif  // TANDEM_CORE_FUSED_ELEMENT_H_
