// In-place collective: works on tensors where they lie, in memory that all
// ranks map.

#ifndef TANDEM_CORE_SHM_IN_PLACE_H_
#define TANDEM_CORE_SHM_IN_PLACE_H_

#include <cstddef>
#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/shm/collectives.h"

namespace tandem {

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

}  // namespace tandem

#endif  // TANDEM_CORE_SHM_IN_PLACE_H_
