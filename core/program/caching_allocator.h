// LibTorch's CPU tensors from a block cache instead of from malloc.

#ifndef TANDEM_CORE_PROGRAM_CACHING_ALLOCATOR_H_
#define TANDEM_CORE_PROGRAM_CACHING_ALLOCATOR_H_

#include "core/program/block_cache.h"

namespace tandem {

// From now on every CPU tensor of this process gets its memory from one cache
// for the process, which is never destroyed (PyTorch's counterpart on GPUs is
// the caching allocator; on the CPU it has none outside of mobile). Tensors
// made before keep theirs. `options` count at the first call alone; returns the
// cache, for its statistics and Trim().
//
// For programs: a library leaves the process's allocator alone. Thread-safe
// with respect to allocation. No memory left is c10::Error, with the text of
// LibTorch's own allocator.
BlockCache& UseCachingAllocator(const BlockCacheOptions& options = {});

}  // namespace tandem

#endif  // TANDEM_CORE_PROGRAM_CACHING_ALLOCATOR_H_
