// Element-wise loops over arrays, compiled for several instruction sets; the
// one that this machine has is chosen when the program runs. No product is
// fused with a sum, so that every instruction set gives the same bits.

#ifndef TANDEM_CORE_VECTOR_KERNELS_H_
#define TANDEM_CORE_VECTOR_KERNELS_H_

#include <c10/core/ScalarType.h>

#include <cstdint>

namespace tandem {

enum class ReduceKind {
  kSum,
  kProduct,
  kMin,
  kMax,
  kBitAnd,
  kBitOr,
  kBitXor,
};

// Which terms are multiplied by the factor before they are combined.
enum class Scaling { kNone, kBoth, kSecond };

// out[i] = a[i] combined with b[i], for `count` elements. `out` may be `a` or
// `b` itself, and must not overlap them otherwise.
using CombineLoop = void (*)(void* out, const void* a, const void* b,
                             int64_t count, double factor);

// Null for what does not exist: dtypes other than float, double, the integers
// and bool (whose sum is "or", whose product is "and"), bitwise operations on
// floating-point numbers, scaling of others or outside of a sum.
CombineLoop FindCombineLoop(c10::ScalarType dtype, ReduceKind kind,
                            Scaling scaling);

// out[i] = in[i] * factor, or divided by it. Float and double; else null.
using ScaleLoop = void (*)(void* out, const void* in, int64_t count,
                           double factor);
ScaleLoop FindMultiplyLoop(c10::ScalarType dtype);
ScaleLoop FindDivideLoop(c10::ScalarType dtype);

// Loops from half precision to float, and back, rounded to nearest even.
struct HalfLoops {
  void (*widen)(float* out, const void* in, int64_t count) = nullptr;
  void (*narrow)(void* out, const float* in, int64_t count) = nullptr;
};

// For kHalf and kBFloat16; null pointers for others.
HalfLoops FindHalfLoops(c10::ScalarType dtype);

}  // namespace tandem

#endif  // TANDEM_CORE_VECTOR_KERNELS_H_
