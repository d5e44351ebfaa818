// Caching allocator: LibTorch's CPU tensors come from a block cache instead of
// from malloc.

#ifndef TANDEM_CORE_PROGRAM_CACHING_ALLOCATOR_H_
#define TANDEM_CORE_PROGRAM_CACHING_ALLOCATOR_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "core/device/host_resources.h"

namespace tandem {

// Sizes rounded up to one of a few, so that memory that was freed fits what is
// asked for next.

// Every size up to 512 is rounded up to a multiple of 64; beyond, there are
// eight sizes between one power of two and the next, so that at most an eighth
// is lost. Zero counts as 1.
//
// The class of a size: 0 for 1 .. 64, 1 for 65 .. 128, and so on.
size_t SizeClass(size_t bytes);

// The greatest size of a class, which is what a block of it holds.
size_t SizeOfClass(size_t size_class);

// There are no more classes than this, for sizes up to 2^48.
constexpr size_t kSizeClasses = 8 * (48 - 9) + 8;

// Memory that is not given back to the system when it is freed, but kept for
// the next block of about the same size.
//
// A training step asks for the same temporaries again and again. From the
// system, each comes as pages that fault one by one and are filled with zeros;
// from here it comes as it was left, on huge pages where the kernel has them.

struct BlockCacheOptions {
  // Free blocks beyond this, or beyond a quarter of what the control group
  // grants, are given back to the system at once.
  size_t max_cached_bytes = size_t{4} << 30;
  // Ask for huge pages (MADV_HUGEPAGE) under blocks that can use them.
  bool huge_pages = true;
  // Where the control groups are (core/device/host_resources.h). Where there
  // is a limit, all free blocks are given back when less than a 32nd of it is
  // left: other processes of the group, that keep theirs, too, share it.
  ControlGroups control_groups;
};

// Thread-safe. Blocks must not outlive it.
class BlockCache {
 public:
  explicit BlockCache(const BlockCacheOptions& options = {});
  // Gives all memory back. Every block must have been freed.
  ~BlockCache();
  BlockCache(const BlockCache&) = delete;
  BlockCache& operator=(const BlockCache&) = delete;

  // At least `bytes`, on a 64-byte boundary; what is in it is not defined. Null
  // when the system has no more, even after Trim().
  void* Allocate(size_t bytes);

  // `block` is what Allocate of the same cache gave, or null. Any thread.
  void Free(void* block);

  // Gives what is cached back to the system.
  void Trim();

  struct Stats {
    size_t used_bytes;    // in blocks that are not free, rounded up
    size_t cached_bytes;  // in free blocks, and still held
    uint64_t allocations;
    uint64_t misses;  // of them, those that no free block served
  };
  Stats stats() const;

 private:
  struct Block;  // stands in front of the memory that it describes
  struct Slab;
  // Free blocks of one size, the last freed first: it is still in a cache.
  struct FreeList {
    absl::Mutex mutex;
    Block* first ABSL_GUARDED_BY(mutex) = nullptr;
  };

  // Now and then, when so much more was freed or taken from the system: Trim()
  // if the control group has little left.
  void TrimIfScarce(size_t bytes);
  Block* TakeFree(size_t size_class);
  Block* NewBlock(size_t size_class);
  Block* Carve(size_t bytes);
  Block* MapAlone(size_t bytes);
  void Push(Block* block);
  // Lets go of a free block's memory; true if the block itself is gone.
  bool Release(Block* block);

  const BlockCacheOptions options_;
  const size_t least_available_;  // in the control group; 0: it has no limit
  std::array<FreeList, kSizeClasses> free_;
  absl::Mutex slab_mutex_;
  Slab* slab_ ABSL_GUARDED_BY(slab_mutex_) = nullptr;  // the newest of a list
  std::atomic<size_t> used_bytes_{0};
  std::atomic<size_t> cached_bytes_{0};
  std::atomic<uint64_t> allocations_{0};
  std::atomic<uint64_t> misses_{0};
  std::atomic<uint64_t> moved_bytes_{0};  // freed, or new from the system
};

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
