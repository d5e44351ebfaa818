// Memory that is not given back to the system when it is freed, but kept for
// the next block of about the same size.
//
// A training step asks for the same temporaries again and again. From the
// system, each comes as pages that fault one by one and are filled with zeros;
// from here it comes as it was left, on huge pages where the kernel has them.

#ifndef TANDEM_CORE_PROGRAM_BLOCK_CACHE_H_
#define TANDEM_CORE_PROGRAM_BLOCK_CACHE_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "core/device/host_resources.h"
#include "core/program/size_classes.h"

namespace tandem {

struct BlockCacheOptions {
  // Free blocks beyond this, or beyond a quarter of what the control group
  // grants, are given back to the system at once.
  size_t max_cached_bytes = size_t{4} << 30;
  // Ask for huge pages (MADV_HUGEPAGE) under blocks that can use them.
  bool huge_pages = true;
  // Where the control groups are (core/device/available_memory.h). Where there
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
  void LookAround(size_t bytes);
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

}  // namespace tandem

#endif  // TANDEM_CORE_PROGRAM_BLOCK_CACHE_H_
