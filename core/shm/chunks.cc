#include "core/shm/chunks.h"

#include <glog/logging.h>

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

void ShmChunked::Begin(ShmRounds& rounds) {
  if (note_.offset >= 0) {
    Place(rounds);
    rounds.Arrive(note_);
  } else {
    BeginChunk(rounds);
  }
}

void ShmChunked::BeginChunk(ShmRounds& rounds) {
  Write(rounds, rounds.NextSlot(), begin_, std::min(step_, bytes_ - begin_));
  rounds.Arrive(note_);
}

absl::Status ShmChunked::Finish(ShmRounds& rounds, ShmDeadline deadline) {
  TANDEM_RETURN_IF_ERROR(rounds.Await(deadline));
  const int in_arenas = CountInArenas(rounds);
  if (in_arenas == rounds.size()) return InPlace(rounds, deadline);
  if (in_arenas > 0) {  // arena tensors have written nothing yet
    BeginChunk(rounds);
    TANDEM_RETURN_IF_ERROR(rounds.Await(deadline));
  }
  for (;;) {
    const size_t n = std::min(step_, bytes_ - begin_);
    Read(rounds, begin_, n);
    begin_ += n;
    if (begin_ == bytes_) return absl::OkStatus();
    BeginChunk(rounds);
    TANDEM_RETURN_IF_ERROR(rounds.Await(deadline));
  }
}

absl::Status ShmChunked::InPlace(ShmRounds&, ShmDeadline) {
  LOG(FATAL) << "no tensor of this collective lies in an arena";
}

}  // namespace tandem
