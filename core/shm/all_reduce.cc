// All-reduce of ranks that share memory.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "absl/status/status.h"
#include "core/base/round_up.h"
#include "core/base/status_macros.h"
#include "core/shm/chunks.h"
#include "core/shm/collectives.h"

namespace tandem {
namespace {

// Up to so many ranks, one round in which each sums everything is cheaper.
constexpr int kFewRanks = 3;

// So much each rank reads at most of small tensors: from 17 ranks on the
// greatest of them are divided. (By processor time of 64 ranks.)
constexpr size_t kMostRead = size_t{1} << 20;

// One of three ways, the same bits in each:
//   small: every rank copies its tensor into its slot and sums all slots, so
//     that all ranks together read the square of their number.
//   in place: all tensors lie in arenas, and are not tiny. In blocks, the sum
//     of all ranks' tensors is written into all of them (core/shm/chunks.h).
//   staged: in chunks through the slots. Up to three ranks each sum all of a
//     chunk; more divide it and exchange the sums in a second round.
class ShmAllReduce : public ShmCollective {
 public:
  ShmAllReduce(MutableBytes tensor, const Reduction& reduction,
               const VectorSum& sum);

  void Begin(ShmRounds& rounds) override;
  absl::Status Finish(ShmRounds& rounds, ShmDeadline deadline) override;
  bool begins_cheaply() const override { return true; }
  bool is_long() const override;

 private:
  bool IsSmall(int ranks) const;
  // Sums [begin, begin + n) of the chunk that is in all slots.
  void SumSlots(const ShmRounds& rounds, size_t begin, size_t n,
                std::byte* result) const;
  absl::Status InPlace(ShmRounds& rounds, ShmDeadline deadline);
  absl::Status Staged(ShmRounds& rounds, ShmDeadline deadline);
  // One chunk of the tensor, from its copy into the slots on.
  absl::Status StageChunk(ShmRounds& rounds, ShmDeadline deadline,
                          std::byte* chunk, size_t n);
  absl::Status DivideChunk(ShmRounds& rounds, ShmDeadline deadline,
                           std::byte* chunk, size_t n);

  const MutableBytes tensor_;
  const VectorSum sum_;
  const size_t element_bytes_;
  ShmNote note_;
};

ShmAllReduce::ShmAllReduce(MutableBytes tensor, const Reduction& reduction,
                           const VectorSum& sum)
    : tensor_(tensor),
      sum_(sum),
      element_bytes_(c10::elementSize(reduction.dtype)),
      note_(MakeNote(ShmOp::kAllReduce, tensor, reduction)) {
  note_.offset = OffsetInNote(tensor);
}

bool ShmAllReduce::IsSmall(int ranks) const {
  return tensor_.size <= kSmallBytes &&
         tensor_.size * static_cast<size_t>(ranks) <= kMostRead;
}

bool ShmAllReduce::is_long() const {
  return tensor_.size > ShmChunked::kLongBytes;
}

void ShmAllReduce::Begin(ShmRounds& rounds) {
  if (IsSmall(rounds.size()) && note_.offset < 0 && tensor_.size > 0) {
    std::memcpy(rounds.NextSlot(), tensor_.data, tensor_.size);
  }
  rounds.Arrive(note_);
}

absl::Status ShmAllReduce::Finish(ShmRounds& rounds, ShmDeadline deadline) {
  TANDEM_RETURN_IF_ERROR(rounds.Await(deadline));
  // The notes are the same for all ranks, and so is the way.
  const int in_arenas = CountInArenas(rounds);
  if (in_arenas == rounds.size()) return InPlace(rounds, deadline);
  if (in_arenas > 0 || !IsSmall(rounds.size())) {
    return Staged(rounds, deadline);
  }
  SumSlots(rounds, 0, tensor_.size, tensor_.data);
  return absl::OkStatus();
}

void ShmAllReduce::SumSlots(const ShmRounds& rounds, size_t begin, size_t n,
                            std::byte* result) const {
  PerRank<const void*> terms;
  for (int r = 0; r < rounds.size(); ++r) {
    terms.push_back(rounds.Slot(r) + begin);
  }
  void* const results[] = {result};
  sum_.Run(terms, results, static_cast<int64_t>(n / element_bytes_));
}

absl::Status ShmAllReduce::InPlace(ShmRounds& rounds, ShmDeadline deadline) {
  return WorkInPlace(rounds, deadline, tensor_,
                     [&](absl::Span<std::byte* const> block_of_rank, size_t n) {
                       const PerRank<const void*> terms(block_of_rank.begin(),
                                                        block_of_rank.end());
                       const PerRank<void*> results(block_of_rank.begin(),
                                                    block_of_rank.end());
                       sum_.Run(terms, results,
                                static_cast<int64_t>(n / element_bytes_));
                     });
}

absl::Status ShmAllReduce::Staged(ShmRounds& rounds, ShmDeadline deadline) {
  for (size_t begin = 0; begin < tensor_.size; begin += kSlotBytes) {
    TANDEM_RETURN_IF_ERROR(
        StageChunk(rounds, deadline, tensor_.data + begin,
                   std::min(kSlotBytes, tensor_.size - begin)));
  }
  return absl::OkStatus();
}

absl::Status ShmAllReduce::StageChunk(ShmRounds& rounds, ShmDeadline deadline,
                                      std::byte* chunk, size_t n) {
  std::memcpy(rounds.NextSlot(), chunk, n);
  rounds.Arrive(note_);
  TANDEM_RETURN_IF_ERROR(rounds.Await(deadline));
  if (rounds.size() > kFewRanks) return DivideChunk(rounds, deadline, chunk, n);
  SumSlots(rounds, 0, n, chunk);
  return absl::OkStatus();
}

absl::Status ShmAllReduce::DivideChunk(ShmRounds& rounds, ShmDeadline deadline,
                                       std::byte* chunk, size_t n) {
  const size_t share =
      RoundUp((n + rounds.size() - 1) / rounds.size(), kCacheLineBytes);
  const auto begin = [&](int rank) { return std::min(n, rank * share); };
  const auto length = [&](int rank) { return begin(rank + 1) - begin(rank); };
  const int me = rounds.rank();
  SumSlots(rounds, begin(me), length(me), rounds.NextSlot());
  rounds.Arrive(note_);
  TANDEM_RETURN_IF_ERROR(rounds.Await(deadline));
  for (int r = 0; r < rounds.size(); ++r) {
    std::memcpy(chunk + begin(r), rounds.Slot(r), length(r));
  }
  return absl::OkStatus();
}

}  // namespace

ShmCollectivePtr MakeAllReduce(MutableBytes tensor, const Reduction& reduction,
                               const VectorSum& sum) {
  return std::make_unique<ShmAllReduce>(tensor, reduction, sum);
}

}  // namespace tandem
