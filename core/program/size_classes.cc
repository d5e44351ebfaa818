#include "core/program/size_classes.h"

#include <cstdint>

namespace tandem {
namespace {

constexpr size_t kUnit = 64;
constexpr size_t kSteps = 8;                // between two powers of two
constexpr size_t kLinear = kUnit * kSteps;  // 512, the first power of two
constexpr int kLinearBits = 9;

int BitsOf(size_t value) { return 64 - __builtin_clzll(value); }

}  // namespace

size_t SizeClassOf(size_t bytes) {
  if (bytes <= kLinear) return bytes == 0 ? 0 : (bytes - 1) / kUnit;
  // `last` is in [2^bits, 2^(bits + 1)), and so are all sizes of these eight.
  const size_t last = bytes - 1;
  const int bits = BitsOf(last) - 1;
  const size_t step = (last >> (bits - 3)) - kSteps;
  return kSteps * (bits - kLinearBits + 1) + step;
}

size_t SizeOfClass(size_t size_class) {
  if (size_class < kSteps) return (size_class + 1) * kUnit;
  const size_t bits = size_class / kSteps - 1 + kLinearBits;
  const size_t step = size_class % kSteps;
  return (kSteps + step + 1) << (bits - 3);
}

}  // namespace tandem
