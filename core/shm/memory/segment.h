// Shared-memory segment: the layout of what the ranks of one host share, and
// their states in it.

#ifndef TANDEM_CORE_SHM_MEMORY_SEGMENT_H_
#define TANDEM_CORE_SHM_MEMORY_SEGMENT_H_

#include <sched.h>
#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/shm/memory/shared_memory.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tandem {

// Sleeping on a word of memory that processes share, and waking who sleeps.

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

// Spin wait: a short one, without giving up the processor.

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

// Where a rank stands. It only ever leaves kPresent, once.
enum class ShmRankState : uint32_t { kPresent, kLeft, kGaveUp, kDied };

// What a rank says about a round. Ranks compare the first part, which must be
// the same on all of them.
struct ShmNote {
  uint32_t operation = 0;  // ShmOp
  int32_t dtype = 0;       // c10::ScalarType, where the operation knows it
  int64_t bytes = 0;       // of this rank's tensor
  int32_t root = 0;
  uint32_t variant = 0;  // such as the kind of a reduction

  int64_t offset = -1;  // of its tensor in its arena; -1: not there
  uint64_t more = 0;    // whether it has data for further rounds
};

// One rank's part, written by that rank, but for `state`, which a peer sets to
// kDied, and the alarms.
struct ShmRankPage {
  // Low 24 bits: rounds that this rank has arrived at, modulo 2^24. High 8
  // bits: alarms, which anybody raises to make sleepers look at the states.
  SharedSignal rounds;
  // Rung to have this rank's worker look for something to do.
  SharedSignal wake_signal;
  // The same of its mail: for who waits for mail, and for the thread that
  // looks after it otherwise.
  SharedSignal mail;
  SharedSignal idle_mail;
  std::atomic<uint32_t> mail_waiters{0};  // threads that look after the mail
  std::atomic<uint32_t> working{0};       // does it hold a block of a tensor?
  std::atomic<uint32_t> state{0};         // ShmRankState
  std::atomic<int32_t> pid{0};
  std::atomic<uint32_t> passed{0};   // the last round that it has waited for
  std::atomic<int32_t> cpu{-1};      // on which it last arrived
  std::atomic<uint32_t> reasons{0};  // how many tried to give one
  static constexpr size_t kReasonBytes = 1024;
  char reason[kReasonBytes];  // of kGaveUp; ends with a zero
  alignas(64) ShmNote notes[2];
};

// What is nobody's own. For tensors that are reduced where they lie: counts of
// blocks, modulo 2^24 for `finished` (high bits: alarms), which never go back.
struct ShmShared {
  alignas(64) std::atomic<uint64_t> claimed{0};
  SharedSignal finished;
  // How many ranks have lost patience in a wait, and asked the others' workers.
  // (One that dies in between stays counted: that costs wake-ups alone.)
  std::atomic<uint32_t> impatient{0};
};

constexpr uint32_t kAlarm = 1U << 24;
constexpr uint32_t kCountMask = kAlarm - 1;

// Has the counter in `word` come to `target`? Both are modulo 2^24.
inline bool Reached(uint32_t word, uint32_t target) {
  return ((word - target) & kCountMask) < kAlarm / 2;
}

// Bytes of one staging slot (each rank has two) and of one mail ring, which
// takes what a pipeline's stages hand on, as a rule, whole: its sender need not
// wait.
constexpr size_t kSlotBytes = size_t{256} << 10;
constexpr size_t kMailBytes = size_t{1} << 20;

// One direction of mail between two ranks: a ring of bytes. Counts of bytes
// that were ever written and read.
struct ShmMailRing {
  alignas(64) std::atomic<uint64_t> written{0};
  alignas(64) std::atomic<uint64_t> read{0};
  alignas(64) std::byte data[kMailBytes];
};

// A view of the common memory of `size` ranks. Movable.
class ShmSegment {
 public:
  // New memory, for rank 0 to hand to the others.
  static absl::StatusOr<OwnedFd> NewMemory(int size);
  // Maps it.
  static absl::StatusOr<ShmSegment> Map(OwnedFd fd, int size);

  int size() const { return size_; }
  ShmShared& shared() const;
  ShmRankPage& page(int rank) const;
  std::byte* slot(int rank, int which) const;  // 64-byte aligned
  ShmMailRing& mail(int from, int to) const;
  // Before the first mail on a ring is written: takes memory for it.
  absl::Status ReserveMail(int from, int to) const;

  ShmRankState state(int rank) const;
  // Leaves kPresent for `state`, unless that has happened, and wakes everybody.
  // `reason` is that of kGaveUp, of the page's own rank only; of several that
  // give one at once, the first is kept, whole.
  void SetState(int rank, ShmRankState state, absl::string_view reason = "");
  std::string reason(int rank) const;

  // What messages call the ranks, where they are some of a larger group.
  void set_names(std::vector<int> names) { names_ = std::move(names); }
  int name(int rank) const { return names_.empty() ? rank : names_[rank]; }

 private:
  void RaiseAlarm() const;

  OwnedFd fd_;
  SharedMapping mapping_;
  int size_ = 0;
  std::vector<int> names_;
};

// Fails with Unavailable when a rank for which `matters` holds is no longer
// present: "rank 2 (pid 123) died", "rank 1 gave up: REASON", "rank 0 left the
// group", in this order of importance. `me` is this rank: when it gave up
// itself, that is told first.
absl::Status CheckPresence(const ShmSegment& segment, int me,
                           absl::FunctionRef<bool(int rank)> matters);

// "rank 2 (pid 123)", "ranks 2 (pid 123), 3 (pid 124)"; of many the first.
std::string NamesOfRanks(const ShmSegment& segment,
                         const std::vector<int>& ranks);

}  // namespace tandem

#endif  // TANDEM_CORE_SHM_MEMORY_SEGMENT_H_
