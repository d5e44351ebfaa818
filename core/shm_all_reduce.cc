#include "core/shm_all_reduce.h"

#include <algorithm>
#include <cstring>

#include "absl/container/inlined_vector.h"
#include "core/shm_chunks.h"
#include "core/shm_operation_names.h"
#include "core/status_macros.h"

namespace tandem {
namespace {

template <typename T>
using PerRank = absl::InlinedVector<T, 16>;

constexpr size_t kLine = 64;
// From here on, what lies in arenas is not copied.
constexpr size_t kInPlaceBytes = 8 << 10;
// Large enough that claiming one is cheap, small enough that ranks end
// together.
constexpr size_t kMostBlockBytes = 128 << 10;
constexpr size_t kLeastBlockBytes = 16 << 10;
// Up to so many ranks, one round in which each sums everything is cheaper.
constexpr int kFewRanks = 3;

size_t RoundUp(size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

// The same on every rank.
size_t BlockBytes(size_t bytes, int ranks) {
  return std::clamp(RoundUp(bytes / (4 * ranks)), kLeastBlockBytes,
                    kMostBlockBytes);
}

}  // namespace

ShmAllReduce::ShmAllReduce(MutableBytes tensor, int64_t offset,
                           const Reduction& reduction, const VectorSum& sum)
    : tensor_(tensor),
      sum_(sum),
      element_bytes_(c10::elementSize(reduction.dtype)) {
  note_.operation = static_cast<uint32_t>(ShmOp::kAllReduce);
  note_.dtype = static_cast<int32_t>(reduction.dtype);
  note_.bytes = static_cast<int64_t>(tensor.size);
  note_.variant = static_cast<uint32_t>(reduction.kind);
  note_.offset = tensor.size > kInPlaceBytes ? offset : -1;
}

bool ShmAllReduce::is_long() const {
  return tensor_.size > ShmChunked::kLongBytes;
}

void ShmAllReduce::Begin(ShmRounds& rounds) {
  if (small() && note_.offset < 0 && tensor_.size > 0) {
    std::memcpy(rounds.NextSlot(), tensor_.data, tensor_.size);
  }
  rounds.Arrive(note_);
}

absl::Status ShmAllReduce::Finish(ShmRounds& rounds, ShmDeadline deadline) {
  TANDEM_RETURN_IF_ERROR(rounds.Await(deadline));
  // The notes are the same for all ranks, and so is the way.
  const int in_arenas = CountInArenas(rounds);
  if (in_arenas == rounds.size()) return InPlace(rounds, deadline);
  if (in_arenas > 0 || !small()) return Staged(rounds, deadline);
  SumSlots(rounds, 0, tensor_.size, tensor_.data);
  return absl::OkStatus();
}

int ShmAllReduce::CountInArenas(const ShmRounds& rounds) {
  int count = 0;
  for (int r = 0; r < rounds.size(); ++r) count += rounds.note(r).offset >= 0;
  return count;
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
  PerRank<std::byte*> tensors;
  for (int r = 0; r < rounds.size(); ++r) {
    tensors.push_back(tensor_.data);
    if (r == rounds.rank()) continue;
    TANDEM_ASSIGN_OR_RETURN(
        tensors.back(),
        rounds.PeerMemory(r, rounds.note(r).offset, note_.bytes));
  }
  const size_t step = BlockBytes(tensor_.size, rounds.size());
  const auto blocks = static_cast<int64_t>((tensor_.size + step - 1) / step);
  for (int64_t i; (i = rounds.ClaimBlock(blocks)) >= 0;) {
    const size_t begin = i * step;
    const size_t n = std::min(step, tensor_.size - begin);
    PerRank<const void*> terms;
    PerRank<void*> results;
    for (std::byte* tensor : tensors) {
      terms.push_back(tensor + begin);
      results.push_back(tensor + begin);
    }
    sum_.Run(terms, absl::MakeSpan(results),
             static_cast<int64_t>(n / element_bytes_));
    rounds.FinishBlock();
  }
  return rounds.AwaitBlocks(blocks, deadline);
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
  const size_t share = RoundUp((n + rounds.size() - 1) / rounds.size());
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

}  // namespace tandem
