// Spin wait: a short one, without giving up the processor.

#ifndef TANDEM_CORE_SHM_MEMORY_SPIN_H_
#define TANDEM_CORE_SHM_MEMORY_SPIN_H_

#include <chrono>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tandem {

// About what it takes to put a thread to sleep and to wake it again.
constexpr std::chrono::microseconds kSpinTime(50);

// Looks at `done` until it holds, for kSpinTime at most, and once only when
// `spin` is false: where threads outnumber processors, the thread that is
// waited for may need this one's. Returns whether it holds.
template <typename Done>
bool SpinUntil(bool spin, Done done) {
  if (done()) return true;
  if (!spin) return false;
  const auto end = std::chrono::steady_clock::now() + kSpinTime;
  do {
    for (int i = 0; i < 32; ++i) {
      if (done()) return true;
#if defined(__x86_64__)
      _mm_pause();
#endif
    }
  } while (std::chrono::steady_clock::now() < end);
  return done();
}

}  // namespace tandem

#endif  // TANDEM_CORE_SHM_MEMORY_SPIN_H_
