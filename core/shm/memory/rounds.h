// Rounds: how ranks that share memory exchange data, and how they wait for each
// other.

#ifndef TANDEM_CORE_SHM_MEMORY_ROUNDS_H_
#define TANDEM_CORE_SHM_MEMORY_ROUNDS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/shm/memory/connect.h"
#include "core/shm/memory/segment.h"
#include "core/shm/memory/shared_memory.h"

namespace tandem {

using ShmDeadline = std::chrono::steady_clock::time_point;

// A group of ranks goes from round to round together. In each, every rank
// writes its slot and a note, arrives, waits until all have arrived, and then
// reads the others' slots. A slot is written again two rounds later: whoever
// has passed the wait of round t knows that all have arrived at t, and so are
// done with t - 1. So there is one wait a round, and none at the end.
//
//   write(NextSlot()); Arrive(note); Await(deadline); read(Slot(r), note(r));
//
// One thread at a time.
class ShmRounds {
 public:
  // `connections` must outlive this.
  ShmRounds(ShmSegment* segment, int rank, const ShmConnections* connections);

  int rank() const { return rank_; }
  int size() const { return segment_->size(); }
  // What messages call a rank.
  int name(int rank) const { return segment_->name(rank); }

  // Where this rank writes for the round that it arrives at next.
  std::byte* NextSlot() const {
    return segment_->slot(rank_, (round_ + 1) % 2);
  }
  // Does not wait.
  void Arrive(const ShmNote& note);
  // Waits until all have arrived at this rank's round.
  //   DeadlineExceeded  names the ranks that have not
  //   Unavailable       one of them died, left or gave up
  //   InvalidArgument   all have, with something else: who, and with what
  absl::Status Await(ShmDeadline deadline);
  // The names of those that have not.
  std::vector<int> Missing() const;
  // The slot of `rank` in the round that was last waited for.
  const std::byte* Slot(int rank) const {
    return segment_->slot(rank, round_ % 2);
  }
  const ShmNote& note(int rank) const {
    return segment_->page(rank).notes[round_ % 2];
  }

  // A tensor that all ranks work on where it lies, in blocks: the index of the
  // next block that nobody has claimed, or -1.
  int64_t ClaimBlock(int64_t blocks);
  // A claimed block is done.
  void FinishBlock();
  // Waits until all blocks are done; then the next tensor may begin.
  absl::Status AwaitBlocks(int64_t blocks, ShmDeadline deadline);

  // The memory of rank `peer`'s arena from `offset`, `bytes` long. OutOfRange
  // when it does not have that much.
  absl::StatusOr<std::byte*> PeerMemory(int peer, int64_t offset,
                                        int64_t bytes);

  // Threads that are not the one that issues collectives spin only where every
  // rank has two cores.
  void set_in_background(bool background) { in_background_ = background; }

 private:
  using RanksAwaited = absl::FunctionRef<bool(int rank)>;

  bool Arrived(int rank) const;
  absl::Status CheckNotes() const;
  absl::Status CheckAlarms();
  bool spins() const;
  // Until `done`, of which `signal` tells; fails when a rank that is awaited
  // will not come, or at the deadline.
  template <typename Done>
  absl::Status SleepUntil(SharedSignal& signal, ShmDeadline deadline, Done done,
                          RanksAwaited awaited);
  absl::Status TimedOut(RanksAwaited awaited) const;
  void WakePeers() const;

  ShmSegment* const segment_;
  const int rank_;
  const ShmConnections* const connections_;
  std::vector<SharedMapping> arenas_;  // of the peers, as far as needed so far
  bool in_background_ = false;
  uint32_t round_ = 0;
  uint32_t alarms_ = 0;  // alarms looked into
  uint64_t blocks_ = 0;  // of all tensors before this one
};

}  // namespace tandem

#endif  // TANDEM_CORE_SHM_MEMORY_ROUNDS_H_
