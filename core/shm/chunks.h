// Chunked collective through slots of shared memory.

#ifndef TANDEM_CORE_SHM_CHUNKS_H_
#define TANDEM_CORE_SHM_CHUNKS_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/shm/collectives.h"
#include "core/shm/memory/operation_names.h"

namespace tandem {

// In-place collective: works on tensors where they lie, in memory that all
// ranks map.

// A cache line's size: what lies in different lines can be written by different
// cores at once without either waiting for the other.
inline constexpr size_t kCacheLineBytes = 64;  // on x86-64 and most ARM64

template <typename T>
using PerRank = absl::InlinedVector<T, 16>;

// What a note says of a tensor: its place, or -1 where it is so small that it
// is better copied.
int64_t OffsetInNote(const MutableBytes& tensor);

// How many ranks' notes of this round have one.
int CountInArenas(const ShmRounds& rounds);

// Where all have one: the ranks divide the tensor in blocks, of which each
// takes the next as it gets to it, and calls `work` with that block of all
// ranks' tensors. A rank that comes late finds that the others have done its
// share. Returns when all blocks are done. `tensor` is this rank's.
using WorkOnBlock = absl::FunctionRef<void(
    absl::Span<std::byte* const> block_of_rank, size_t bytes)>;
absl::Status WorkInPlace(ShmRounds& rounds, ShmDeadline deadline,
                         const MutableBytes& tensor, WorkOnBlock work);

// No bytes may come with no address.
inline void CopyBytes(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

// A slot's share for each of `ranks` ranks.
inline size_t SharePerRank(size_t ranks) {
  return kSlotBytes / ranks / 64 * 64;
}

template <typename Bytes>
ShmNote MakeNote(ShmOp operation, const Bytes& tensor, int root = 0) {
  ShmNote note;
  note.operation = static_cast<uint32_t>(operation);
  note.dtype = static_cast<int32_t>(tensor.dtype);
  note.bytes = static_cast<int64_t>(tensor.size);
  note.root = root;
  return note;
}

inline ShmNote MakeNote(ShmOp operation, const MutableBytes& tensor,
                        const Reduction& reduction, int root = 0) {
  ShmNote note = MakeNote(operation, tensor, root);
  note.dtype = static_cast<int32_t>(reduction.dtype);
  note.variant = static_cast<uint32_t>(reduction.kind);
  return note;
}

// In each round this rank writes what the others need of [begin, begin + n)
// into its slot, and reads theirs. At least one round, with n = 0 perhaps.
// Where all ranks' notes tell where in an arena their tensors lie, InPlace()
// does all instead.
class ShmChunked : public ShmCollective {
 public:
  // `bytes` in all, `step` of them a round.
  ShmChunked(const ShmNote& note, size_t bytes, size_t step)
      : note_(note), bytes_(bytes), step_(step) {}

  void Begin(ShmRounds& rounds) final;
  absl::Status Finish(ShmRounds& rounds, ShmDeadline deadline) final;
  bool begins_cheaply() const final {
    return (note_.offset >= 0 ? placed_bytes() : written_bytes()) <=
           kSmallBytes;
  }
  bool is_long() const final { return moved_bytes() > kLongBytes; }

  // Above this a collective goes on in the background.
  static constexpr size_t kLongBytes = 256 << 10;

 protected:
  virtual void Write(const ShmRounds& rounds, std::byte* slot, size_t begin,
                     size_t n) = 0;
  virtual void Read(const ShmRounds& rounds, size_t begin, size_t n) = 0;
  // For notes that may have an offset.
  virtual absl::Status InPlace(ShmRounds& rounds, ShmDeadline deadline);
  // Copies to where the note tells what the others are to find there.
  virtual void Place(const ShmRounds&) {}
  // What Place() copies.
  virtual size_t placed_bytes() const { return 0; }
  // What Write() copies in the first round, about.
  virtual size_t written_bytes() const { return bytes_; }
  // What this rank writes and reads, about.
  virtual size_t moved_bytes() const { return bytes_; }

  size_t step() const { return step_; }

 private:
  void BeginChunk(ShmRounds& rounds);

  const ShmNote note_;
  const size_t bytes_;
  const size_t step_;
  size_t begin_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_CORE_SHM_CHUNKS_H_
