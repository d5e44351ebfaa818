#include "core/shm/in_place.h"

#include <algorithm>

#include "core/base/round_up.h"
#include "core/base/status_macros.h"

namespace tandem {
namespace {

// From here on, what lies in arenas is not copied.
constexpr size_t kInPlaceBytes = 8 << 10;
// Large enough that claiming one is cheap, small enough that ranks end
// together.
constexpr size_t kMostBlockBytes = 128 << 10;
constexpr size_t kLeastBlockBytes = 16 << 10;

// The same on every rank.
size_t BlockBytes(size_t bytes, int ranks) {
  const size_t share = bytes / (4 * ranks);
  return std::clamp(RoundUp(share, kCacheLineBytes), kLeastBlockBytes,
                    kMostBlockBytes);
}

}  // namespace

int64_t OffsetInNote(const MutableBytes& tensor) {
  return tensor.size > kInPlaceBytes ? tensor.offset : -1;
}

int CountInArenas(const ShmRounds& rounds) {
  int count = 0;
  for (int r = 0; r < rounds.size(); ++r) count += rounds.note(r).offset >= 0;
  return count;
}

absl::Status WorkInPlace(ShmRounds& rounds, ShmDeadline deadline,
                         const MutableBytes& tensor, WorkOnBlock work) {
  PerRank<std::byte*> tensors;
  for (int r = 0; r < rounds.size(); ++r) {
    tensors.push_back(tensor.data);
    if (r == rounds.rank()) continue;
    TANDEM_ASSIGN_OR_RETURN(
        tensors.back(), rounds.PeerMemory(r, rounds.note(r).offset,
                                          static_cast<int64_t>(tensor.size)));
  }
  const size_t step = BlockBytes(tensor.size, rounds.size());
  const auto blocks = static_cast<int64_t>((tensor.size + step - 1) / step);
  for (int64_t i; (i = rounds.ClaimBlock(blocks)) >= 0;) {
    const size_t begin = i * step;
    PerRank<std::byte*> block = tensors;
    for (std::byte*& each : block) each += begin;
    work(block, std::min(step, tensor.size - begin));
    rounds.FinishBlock();
  }
  return rounds.AwaitBlocks(blocks, deadline);
}

}  // namespace tandem
