#include "core/shm/memory/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace tandem {
namespace {

// Not the private operations: the word may be of several processes.
void Futex(std::atomic<uint32_t>* word, int operation, uint32_t value,
           const timespec* timeout) {
  syscall(SYS_futex, word, operation, value, timeout, nullptr, 0);
}

}  // namespace

void SharedSignal::Add(uint32_t delta) {
  value_.fetch_add(delta);
  if (sleepers_.load() != 0) Futex(&value_, FUTEX_WAKE, INT_MAX, nullptr);
}

void SharedSignal::Sleep(uint32_t seen, std::chrono::nanoseconds timeout) {
  if (timeout.count() <= 0) return;
  timespec limit;
  limit.tv_sec = timeout.count() / 1000000000;
  limit.tv_nsec = timeout.count() % 1000000000;
  sleepers_.fetch_add(1);
  // The kernel compares once more before it lets the thread sleep.
  Futex(&value_, FUTEX_WAIT, seen, &limit);
  sleepers_.fetch_sub(1);
}

}  // namespace tandem
