// A library that is loaded before a program's others (LD_PRELOAD) and gives
// each process the wall clock of its ClockPage (clock_page.h). The steady clock
// stays as it is. Where the clock is set while a thread waits for a time of it
// (a futex, as Abseil's, or a condition variable, as LibTorch's), the wait is
// over, or goes on, as the kernel has it.

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "tests/e2e/clocks/clock_page.h"

namespace tandem {
namespace {

constexpr int64_t kSecond = 1000000000;
// Nanoseconds after which a wait looks at the clock again.
constexpr int64_t kLook = 5000000;

ClockPage::Process* MapPage() {
  const char* const path = getenv(kClockPageVariable);
  if (path == nullptr) return nullptr;
  const int file = open(path, O_RDWR | O_CLOEXEC);
  if (file < 0) return nullptr;
  void* const page = mmap(nullptr, sizeof(ClockPage), PROT_READ | PROT_WRITE,
                          MAP_SHARED, file, 0);
  close(file);
  const char* const rank = getenv("RANK");
  const int process = rank == nullptr ? 0 : 1 + atoi(rank);
  if (page == MAP_FAILED || process >= kClockProcesses) abort();
  return &static_cast<ClockPage*>(page)->processes[process];
}

int64_t Offset() {
  static ClockPage::Process* const mine = MapPage();
  static std::atomic<int64_t> last(0);
  if (mine == nullptr) return 0;
  const int64_t offset = mine->offset;
  if (last.exchange(offset) != offset) ++mine->jumps_seen;
  return offset;
}

template <typename Function>
Function* Next(const char* name) {
  void* const next = dlsym(RTLD_NEXT, name);
  if (next == nullptr) abort();
  return reinterpret_cast<Function*>(next);
}

timespec HostTime(clockid_t clock) {
  static auto* const next = Next<int(clockid_t, timespec*)>("clock_gettime");
  timespec time;
  if (next(clock, &time) != 0) abort();
  return time;
}

int64_t Nanoseconds(const timespec& time) {
  return time.tv_sec * kSecond + time.tv_nsec;
}

// Until when the kernel waits for a time that is `left` from now.
timespec NextLook(int64_t left) {
  const int64_t time = Nanoseconds(HostTime(CLOCK_REALTIME)) +
                       std::clamp<int64_t>(left, 0, kLook);
  return {time / kSecond, time % kSecond};
}

// How many signals a condition has had, or another one that shares its number.
std::atomic<uint32_t>& SignalsOf(const pthread_cond_t* condition) {
  static std::atomic<uint32_t> signals[4096];
  return signals[reinterpret_cast<uintptr_t>(condition) / 16 % 4096];
}

bool WaitsByWallClock(long operation) {
  return (operation & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET &&
         (operation & FUTEX_CLOCK_REALTIME) != 0;
}

// Nanoseconds until a time of this process's clock, counted by it.
int64_t LeftUntil(const timespec& deadline) {
  return Nanoseconds(deadline) - Offset() * kSecond -
         Nanoseconds(HostTime(CLOCK_REALTIME));
}

bool IsWallClock(clockid_t clock) {
  return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
}

}  // namespace
}  // namespace tandem

extern "C" {

int clock_gettime(clockid_t clock, timespec* time) noexcept {
  static auto* const next =
      tandem::Next<int(clockid_t, timespec*)>("clock_gettime");
  const int result = next(clock, time);
  if (result == 0 && tandem::IsWallClock(clock)) {
    time->tv_sec += tandem::Offset();
  }
  return result;
}

int gettimeofday(timeval* time, void* /*zone*/) noexcept {
  const timespec now = tandem::HostTime(CLOCK_REALTIME);
  time->tv_sec = now.tv_sec + tandem::Offset();
  time->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t* result) noexcept {
  const time_t now = tandem::HostTime(CLOCK_REALTIME).tv_sec + tandem::Offset();
  if (result != nullptr) *result = now;
  return now;
}

// Changes futexes that wait until a time of the wall clock; all other calls are
// as they are.
long syscall(long number, ...) noexcept {
  static auto* const next = tandem::Next<long(long, ...)>("syscall");
  va_list list;
  va_start(list, number);
  long a[6];
  for (long& each : a) each = va_arg(list, long);
  va_end(list);
  const auto* const deadline = reinterpret_cast<const timespec*>(a[3]);
  if (number != SYS_futex || !tandem::WaitsByWallClock(a[1]) ||
      deadline == nullptr) {
    return next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
  }
  for (;;) {
    const int64_t left = tandem::LeftUntil(*deadline);
    const timespec look = tandem::NextLook(left);
    const long result = next(number, a[0], a[1], a[2], &look, a[4], a[5]);
    if (result == 0 || errno != ETIMEDOUT || left <= 0) return result;
  }
}

int pthread_cond_signal(pthread_cond_t* condition) noexcept {
  static auto* const next =
      tandem::Next<int(pthread_cond_t*)>("pthread_cond_signal");
  ++tandem::SignalsOf(condition);
  return next(condition);
}

int pthread_cond_broadcast(pthread_cond_t* condition) noexcept {
  static auto* const next =
      tandem::Next<int(pthread_cond_t*)>("pthread_cond_broadcast");
  ++tandem::SignalsOf(condition);
  return next(condition);
}

// A condition that does not wait until a time of the wall clock has a time
// since the host was started.
int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                           const timespec* deadline) {
  using Wait = int(pthread_cond_t*, pthread_mutex_t*, const timespec*);
  static auto* const next = tandem::Next<Wait>("pthread_cond_timedwait");
  constexpr time_t kNoUptime = 1000000000;
  if (deadline->tv_sec < kNoUptime) return next(condition, mutex, deadline);
  const uint32_t signals = tandem::SignalsOf(condition);
  for (;;) {
    const int64_t left = tandem::LeftUntil(*deadline);
    const timespec look = tandem::NextLook(left);
    const int result = next(condition, mutex, &look);
    if (result != ETIMEDOUT || left <= 0) return result;
    // One may have come between two looks. Without one it does not wake up:
    // who waits by the steady clock would begin with another deadline.
    if (tandem::SignalsOf(condition) != signals) return 0;
  }
}

}  // extern "C"
