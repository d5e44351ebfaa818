#include "core/vector/kernels.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <type_traits>

#include "core/vector/dispatch.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace tandem {
namespace {

using c10::ScalarType;

// Integers wrap around, as in LibTorch; in C++ only unsigned ones do.
template <typename T, bool = std::is_integral_v<T>>
struct Arithmetic {
  using type = T;
};
template <typename T>
struct Arithmetic<T, true> {
  // At least unsigned int: smaller ones would be promoted to int.
  using type = std::common_type_t<std::make_unsigned_t<T>, unsigned>;
};

template <typename T>
using ArithmeticT = typename Arithmetic<T>::type;

struct Sum {
  template <typename T>
  static TANDEM_INLINE T Of(T a, T b) {
    return static_cast<T>(ArithmeticT<T>(a) + ArithmeticT<T>(b));
  }
};
struct Product {
  template <typename T>
  static TANDEM_INLINE T Of(T a, T b) {
    return static_cast<T>(ArithmeticT<T>(a) * ArithmeticT<T>(b));
  }
};
struct Min {
  template <typename T>
  static TANDEM_INLINE T Of(T a, T b) {
    return b < a ? b : a;
  }
};
struct Max {
  template <typename T>
  static TANDEM_INLINE T Of(T a, T b) {
    return a < b ? b : a;
  }
};
struct BitAnd {
  template <typename T>
  static TANDEM_INLINE T Of(T a, T b) {
    return static_cast<T>(a & b);
  }
};
struct BitOr {
  template <typename T>
  static TANDEM_INLINE T Of(T a, T b) {
    return static_cast<T>(a | b);
  }
};
struct BitXor {
  template <typename T>
  static TANDEM_INLINE T Of(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};

// Aliases are of one index, so no iteration depends on another.
template <typename T, typename Op, Scaling kScaling>
struct Combine {
  static TANDEM_INLINE void Body(T* out, const T* a, const T* b, int64_t count,
                                 double factor) {
    [[maybe_unused]] const T f = static_cast<T>(factor);
    TANDEM_INDEPENDENT
    for (int64_t i = 0; i < count; ++i) {
      T x = a[i];
      T y = b[i];
      if constexpr (kScaling == Scaling::kBoth) x = x * f;
      if constexpr (kScaling != Scaling::kNone) y = y * f;
      out[i] = Op::Of(x, y);
    }
  }
};

template <typename T, bool kDivide>
struct Scale {
  static TANDEM_INLINE void Body(T* out, const T* in, int64_t count,
                                 double factor) {
    const T f = static_cast<T>(factor);
    TANDEM_INDEPENDENT
    for (int64_t i = 0; i < count; ++i) {
      out[i] = kDivide ? in[i] / f : in[i] * f;
    }
  }
};

// A loop over typed arrays, called with untyped ones.
template <typename T, typename Op, Scaling kScaling>
void CallCombine(void* out, const void* a, const void* b, int64_t count,
                 double factor) {
  static const auto run = Choose<Combine<T, Op, kScaling>, T*, const T*,
                                 const T*, int64_t, double>();
  run(static_cast<T*>(out), static_cast<const T*>(a), static_cast<const T*>(b),
      count, factor);
}

template <typename T, bool kDivide>
void CallScale(void* out, const void* in, int64_t count, double factor) {
  static const auto run =
      Choose<Scale<T, kDivide>, T*, const T*, int64_t, double>();
  run(static_cast<T*>(out), static_cast<const T*>(in), count, factor);
}

template <typename T>
CombineLoop SumLoop(Scaling scaling) {
  if (scaling == Scaling::kNone) return &CallCombine<T, Sum, Scaling::kNone>;
  if constexpr (std::is_floating_point_v<T>) {
    return scaling == Scaling::kBoth ? &CallCombine<T, Sum, Scaling::kBoth>
                                     : &CallCombine<T, Sum, Scaling::kSecond>;
  }
  return nullptr;
}

template <typename T>
CombineLoop BitLoop(ReduceKind kind) {
  if constexpr (std::is_integral_v<T>) {
    switch (kind) {
      case ReduceKind::kBitAnd:
        return &CallCombine<T, BitAnd, Scaling::kNone>;
      case ReduceKind::kBitOr:
        return &CallCombine<T, BitOr, Scaling::kNone>;
      default:
        return &CallCombine<T, BitXor, Scaling::kNone>;
    }
  }
  return nullptr;
}

template <typename T>
CombineLoop SelectLoop(ReduceKind kind, Scaling scaling) {
  if (kind == ReduceKind::kSum) return SumLoop<T>(scaling);
  if (scaling != Scaling::kNone) return nullptr;
  switch (kind) {
    case ReduceKind::kProduct:
      return &CallCombine<T, Product, Scaling::kNone>;
    case ReduceKind::kMin:
      return &CallCombine<T, Min, Scaling::kNone>;
    case ReduceKind::kMax:
      return &CallCombine<T, Max, Scaling::kNone>;
    default:
      return BitLoop<T>(kind);
  }
}

// Reduces bools as bits that are 0 or 1.
CombineLoop BoolLoop(ReduceKind kind, Scaling scaling) {
  switch (kind) {
    case ReduceKind::kSum:
    case ReduceKind::kMax:
      return SelectLoop<uint8_t>(ReduceKind::kBitOr, scaling);
    case ReduceKind::kProduct:
    case ReduceKind::kMin:
      return SelectLoop<uint8_t>(ReduceKind::kBitAnd, scaling);
    default:
      return SelectLoop<uint8_t>(kind, scaling);
  }
}

}  // namespace

CombineLoop FindCombineLoop(ScalarType dtype, ReduceKind kind,
                            Scaling scaling) {
  switch (dtype) {
    case ScalarType::Float:
      return SelectLoop<float>(kind, scaling);
    case ScalarType::Double:
      return SelectLoop<double>(kind, scaling);
    case ScalarType::Char:
      return SelectLoop<int8_t>(kind, scaling);
    case ScalarType::Byte:
      return SelectLoop<uint8_t>(kind, scaling);
    case ScalarType::Short:
      return SelectLoop<int16_t>(kind, scaling);
    case ScalarType::Int:
      return SelectLoop<int32_t>(kind, scaling);
    case ScalarType::Long:
      return SelectLoop<int64_t>(kind, scaling);
    case ScalarType::Bool:
      return BoolLoop(kind, scaling);
    default:
      return nullptr;
  }
}

ScaleLoop FindMultiplyLoop(ScalarType dtype) {
  if (dtype == ScalarType::Float) return &CallScale<float, false>;
  if (dtype == ScalarType::Double) return &CallScale<double, false>;
  return nullptr;
}

ScaleLoop FindDivideLoop(ScalarType dtype) {
  if (dtype == ScalarType::Float) return &CallScale<float, true>;
  if (dtype == ScalarType::Double) return &CallScale<double, true>;
  return nullptr;
}

namespace {

template <typename T>
struct Widen {
  static TANDEM_INLINE void Body(float* out, const T* in, int64_t count) {
    for (int64_t i = 0; i < count; ++i) out[i] = static_cast<float>(in[i]);
  }
};

template <typename T>
struct Narrow {
  static TANDEM_INLINE void Body(T* out, const float* in, int64_t count) {
    for (int64_t i = 0; i < count; ++i) out[i] = T(in[i]);
  }
};

#if defined(__x86_64__)

__attribute__((target("avx2,f16c"))) void WidenHalfF16c(float* out,
                                                        const c10::Half* in,
                                                        int64_t count) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i half =
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i));
    _mm256_storeu_ps(out + i, _mm256_cvtph_ps(half));
  }
  Widen<c10::Half>::Body(out + i, in + i, count - i);
}

__attribute__((target("avx2,f16c"))) void NarrowHalfF16c(c10::Half* out,
                                                         const float* in,
                                                         int64_t count) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i half =
        _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), half);
  }
  Narrow<c10::Half>::Body(out + i, in + i, count - i);
}

bool HasF16c() {
  __builtin_cpu_init();
  // By its bit: Clang 14 does not know the feature by its name.
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __builtin_cpu_supports("avx2") &&
         __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

#endif

template <typename T>
void CallWiden(float* out, const void* in, int64_t count) {
  static const auto run = Choose<Widen<T>, float*, const T*, int64_t>();
  run(out, static_cast<const T*>(in), count);
}

template <typename T>
void CallNarrow(void* out, const float* in, int64_t count) {
  static const auto run = Choose<Narrow<T>, T*, const float*, int64_t>();
  run(static_cast<T*>(out), in, count);
}

}  // namespace

HalfLoops FindHalfLoops(c10::ScalarType dtype) {
  if (dtype == c10::ScalarType::BFloat16) {
    return {&CallWiden<c10::BFloat16>, &CallNarrow<c10::BFloat16>};
  }
  if (dtype != c10::ScalarType::Half) return {};
#if defined(__x86_64__)
  if (HasF16c()) {
    return {[](float* out, const void* in, int64_t count) {
              WidenHalfF16c(out, static_cast<const c10::Half*>(in), count);
            },
            [](void* out, const float* in, int64_t count) {
              NarrowHalfF16c(static_cast<c10::Half*>(out), in, count);
            }};
  }
#endif
  return {&CallWiden<c10::Half>, &CallNarrow<c10::Half>};
}

}  // namespace tandem
