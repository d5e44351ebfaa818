// Instruction-set dispatch: one loop compiled for several, of which the program
// chooses when it runs. For the loops of this folder.

#ifndef TANDEM_CORE_VECTOR_DISPATCH_H_
#define TANDEM_CORE_VECTOR_DISPATCH_H_

// A body that is compiled anew for each instruction set must be part of it.
#define TANDEM_INLINE inline __attribute__((always_inline))

// Before a loop: no iteration depends on another; four are written out.
#ifdef __clang__
#define TANDEM_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#define TANDEM_UNROLL_4 _Pragma("clang loop unroll_count(4)")
#else
#define TANDEM_INDEPENDENT _Pragma("GCC ivdep")
#define TANDEM_UNROLL_4 _Pragma("GCC unroll 4")
#endif

namespace tandem {

// The same body for each instruction set.
template <typename Kernel, typename... Args>
void RunBaseline(Args... args) {
  Kernel::Body(args...);
}

#if defined(__x86_64__)

template <typename Kernel, typename... Args>
__attribute__((target("avx2"))) void RunAvx2(Args... args) {
  Kernel::Body(args...);
}

#ifdef __clang__  // takes no preference of a function's own
#define TANDEM_AVX512 "avx512f,avx512bw,avx512vl,avx512dq"
#else
#define TANDEM_AVX512 \
  "avx512f,avx512bw,avx512vl,avx512dq,prefer-vector-width=512"
#endif

template <typename Kernel, typename... Args>
__attribute__((target(TANDEM_AVX512))) void RunAvx512(Args... args) {
  Kernel::Body(args...);
}

enum class Level { kBaseline, kAvx2, kAvx512 };

inline Level FindLevel() {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq")) {
    return Level::kAvx512;
  }
  return __builtin_cpu_supports("avx2") ? Level::kAvx2 : Level::kBaseline;
}

template <typename Kernel, typename... Args>
auto Choose() -> void (*)(Args...) {
  static const Level level = FindLevel();
  switch (level) {
    case Level::kAvx512:
      return &RunAvx512<Kernel, Args...>;
    case Level::kAvx2:
      return &RunAvx2<Kernel, Args...>;
    default:
      return &RunBaseline<Kernel, Args...>;
  }
}

#else

template <typename Kernel, typename... Args>
auto Choose() -> void (*)(Args...) {
  return &RunBaseline<Kernel, Args...>;
}

#endif

}  // namespace tandem

#endif  // TANDEM_CORE_VECTOR_DISPATCH_H_
