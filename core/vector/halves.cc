#include "core/vector/halves.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "core/vector/dispatch.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace tandem {
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
