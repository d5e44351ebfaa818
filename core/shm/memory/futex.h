// Sleeping on a word of memory that processes share, and waking who sleeps.

#ifndef TANDEM_CORE_SHM_MEMORY_FUTEX_H_
#define TANDEM_CORE_SHM_MEMORY_FUTEX_H_

#include <atomic>
#include <chrono>
#include <cstdint>

namespace tandem {

// A word that others wait for, on a cache line of its own. It may lie in memory
// that several processes map, each at an address of its own: it holds no
// pointer, and zeros are a valid initial state. A process that is killed while
// it sleeps leaves nothing worse behind than system calls that wake nobody.
//
// Memory order: what a thread wrote before Add() is seen by whoever reads the
// new value (release and acquire); Add() and Sleep() are sequentially
// consistent among themselves, so no wake-up is lost.
class alignas(64) SharedSignal {
 public:
  uint32_t value() const { return value_.load(std::memory_order_acquire); }

  // Adds and wakes all sleepers. A system call only when there are any.
  void Add(uint32_t delta);

  // Sleeps while the value is `seen`, `timeout` at most; may return early.
  void Sleep(uint32_t seen, std::chrono::nanoseconds timeout);

  // Does anybody sleep?
  bool awaited() const { return sleepers_.load() != 0; }

 private:
  std::atomic<uint32_t> value_{0};
  std::atomic<uint32_t> sleepers_{0};
};

static_assert(std::atomic<uint32_t>::is_always_lock_free);

}  // namespace tandem

#endif  // TANDEM_CORE_SHM_MEMORY_FUTEX_H_
