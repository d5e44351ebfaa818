#include "core/shm/memory/rounds.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <optional>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/shm/memory/operation_names.h"
#include "core/shm/memory/segment.h"

namespace tandem {
namespace {

using std::chrono::steady_clock;

// A peer may have issued the same collective and left it for later, when its
// own thread waits for it. If it does not come to that, its worker is asked.
constexpr std::chrono::microseconds kPatience(200);
// Nothing should need this: the states are looked at now and then all the same.
constexpr std::chrono::seconds kLongestSleep(1);

// Counts a rank among those that have asked, while it waits on.
class Impatience {
 public:
  explicit Impatience(std::atomic<uint32_t>& count) : count_(count) {
    count_.fetch_add(1);
  }
  ~Impatience() { count_.fetch_sub(1); }
  Impatience(const Impatience&) = delete;
  Impatience& operator=(const Impatience&) = delete;

 private:
  std::atomic<uint32_t>& count_;
};

}  // namespace

ShmRounds::ShmRounds(ShmSegment* segment, int rank,
                     const ShmConnections* connections)
    : segment_(segment), rank_(rank), connections_(connections) {
  arenas_.resize(segment->size());
}

void ShmRounds::Arrive(const ShmNote& note) {
  ++round_;
  ShmRankPage& mine = segment_->page(rank_);
  mine.notes[round_ % 2] = note;
  mine.cpu.store(sched_getcpu(), std::memory_order_relaxed);
  mine.rounds.Add(1);
}

bool ShmRounds::Arrived(int rank) const {
  return Reached(segment_->page(rank).rounds.value(), round_);
}

std::vector<int> ShmRounds::Missing() const {
  std::vector<int> names;
  for (int r = 0; r < size(); ++r) {
    if (!Arrived(r)) names.push_back(name(r));
  }
  return names;
}

// Not while a peer may be waiting for this very processor: the system places
// a thread that is woken beside the one that wakes it.
bool ShmRounds::spins() const {
  if (!(in_background_ ? connections_->two_cores_for_each
                       : connections_->core_for_each)) {
    return false;
  }
  const int cpu = sched_getcpu();
  for (int r = 0; r < size(); ++r) {
    if (r != rank_ && !Arrived(r) &&
        segment_->page(r).cpu.load(std::memory_order_relaxed) == cpu) {
      return false;
    }
  }
  return true;
}

template <typename Done>
absl::Status ShmRounds::SleepUntil(SharedSignal& signal, ShmDeadline deadline,
                                   Done done, RanksAwaited awaited) {
  std::optional<Impatience> impatience;
  for (;;) {
    const uint32_t seen = signal.value();
    if (done()) return absl::OkStatus();
    // An alarm that is raised from here on changes the signal.
    TANDEM_RETURN_IF_ERROR(CheckPresence(*segment_, rank_, awaited));
    const auto left = deadline - steady_clock::now();
    if (left.count() <= 0) return TimedOut(awaited);
    signal.Sleep(seen, std::min<std::chrono::nanoseconds>(
                           left, impatience ? kLongestSleep : kPatience));
    if (!impatience && !done()) {
      impatience.emplace(segment_->shared().impatient);
      WakePeers();
    }
  }
}

// The order matters, as the other side's does (ShmQueue::Issue): who issues
// queues its task and looks then whether anybody is impatient; who is counts
// itself and rings then. So either the issuer sees it, or its worker, which is
// rung, sees the task. One ring is enough, however long the wait is.
void ShmRounds::WakePeers() const {
  for (int r = 0; r < size(); ++r) {
    if (r != rank_) segment_->page(r).wake_signal.Add(1);
  }
}

absl::Status ShmRounds::TimedOut(RanksAwaited awaited) const {
  std::vector<int> ranks;
  for (int r = 0; r < size(); ++r) {
    if (awaited(r)) ranks.push_back(r);
  }
  return absl::DeadlineExceededError(
      absl::StrCat("timed out waiting for ", NamesOfRanks(*segment_, ranks)));
}

absl::Status ShmRounds::Await(ShmDeadline deadline) {
  const auto missing = [this](int rank) { return !Arrived(rank); };
  for (int r = 0; r < size(); ++r) {
    const auto arrived = [&] { return Arrived(r); };
    if (r == rank_ || SpinUntil(spins(), arrived)) continue;
    TANDEM_RETURN_IF_ERROR(
        SleepUntil(segment_->page(r).rounds, deadline, arrived, missing));
  }
  // First what all ranks see alike.
  TANDEM_RETURN_IF_ERROR(CheckNotes());
  TANDEM_RETURN_IF_ERROR(CheckAlarms());
  segment_->page(rank_).passed.store(round_, std::memory_order_relaxed);
  return absl::OkStatus();
}

// A rank may have arrived and then waited in vain for this one: what it leaves
// here must not be taken for success.
absl::Status ShmRounds::CheckAlarms() {
  const uint32_t alarms = segment_->page(rank_).rounds.value() / kAlarm;
  if (alarms == alarms_) return absl::OkStatus();
  alarms_ = alarms;
  return CheckPresence(*segment_, rank_, [this](int rank) {
    return segment_->state(rank) == ShmRankState::kGaveUp &&
           segment_->page(rank).passed.load() < round_;
  });
}

absl::Status ShmRounds::CheckNotes() const {
  const ShmNote& mine = note(rank_);
  for (int r = 0; r < size(); ++r) {
    const ShmNote& theirs = note(r);
    if (theirs.operation == mine.operation && theirs.dtype == mine.dtype &&
        theirs.bytes == mine.bytes && theirs.root == mine.root &&
        theirs.variant == mine.variant) {
      continue;
    }
    return absl::InvalidArgumentError(
        absl::StrCat("ranks disagree on what they do: rank ", segment_->name(r),
                     " is in ", DescribeNote(theirs), ", rank ",
                     segment_->name(rank_), " in ", DescribeNote(mine)));
  }
  return absl::OkStatus();
}

int64_t ShmRounds::ClaimBlock(int64_t blocks) {
  std::atomic<uint64_t>& claimed = segment_->shared().claimed;
  std::atomic<uint32_t>& working = segment_->page(rank_).working;
  working.store(1, std::memory_order_relaxed);
  uint64_t next = claimed.load();
  while (next < blocks_ + blocks) {
    if (claimed.compare_exchange_weak(next, next + 1)) {
      return static_cast<int64_t>(next - blocks_);
    }
  }
  working.store(0, std::memory_order_relaxed);
  return -1;
}

void ShmRounds::FinishBlock() {
  // In this order: a rank that dies in between has finished its block.
  segment_->shared().finished.Add(1);
  segment_->page(rank_).working.store(0, std::memory_order_relaxed);
}

absl::Status ShmRounds::AwaitBlocks(int64_t blocks, ShmDeadline deadline) {
  const uint64_t target = blocks_ + blocks;
  SharedSignal& finished = segment_->shared().finished;
  const auto done = [&] {
    return Reached(finished.value(), static_cast<uint32_t>(target));
  };
  if (!SpinUntil(spins(), done)) {
    TANDEM_RETURN_IF_ERROR(
        SleepUntil(finished, deadline, done, [this](int rank) {
          return rank != rank_ && segment_->page(rank).working.load() != 0;
        }));
  }
  blocks_ = target;
  return absl::OkStatus();
}

absl::StatusOr<std::byte*> ShmRounds::PeerMemory(int peer, int64_t offset,
                                                 int64_t bytes) {
  const uint64_t begin = static_cast<uint64_t>(offset);
  const uint64_t length = static_cast<uint64_t>(bytes);
  SharedMapping& arena = arenas_[peer];
  if (begin + length > arena.bytes()) {
    const int fd = connections_->peers[peer].arena->get();
    TANDEM_ASSIGN_OR_RETURN(const size_t size, SharedMemorySize(fd));
    TANDEM_ASSIGN_OR_RETURN(arena, SharedMapping::Map(fd, size));
  }
  if (begin > arena.bytes() || length > arena.bytes() - begin) {
    return absl::OutOfRangeError(absl::StrCat(
        "rank ", segment_->name(peer), " names memory that it does not share"));
  }
  return arena.data() + begin;
}

}  // namespace tandem
