#include "core/program/caching_allocator.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

namespace tandem {
namespace {

// Set once, before any tensor comes from it: a plain pointer, for deleters have
// no argument but the memory.
BlockCache* process_cache = nullptr;

void FreeBlock(void* data) { process_cache->Free(data); }

class CachingAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* data = nullptr;
    if (bytes > 0) {
      data = process_cache->Allocate(bytes);
      TORCH_CHECK_WITH(OutOfMemoryError, data != nullptr,
                       "CachingAllocator: can't allocate memory: you tried to "
                       "allocate ",
                       bytes, " bytes");
    }
    return {data, data, &FreeBlock, c10::kCPU};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &FreeBlock; }

  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

}  // namespace

BlockCache& UseCachingAllocator(const BlockCacheOptions& options) {
  static BlockCache* const cache = [&options] {
    process_cache = new BlockCache(options);
    // LibTorch's own has priority 0; so has this, and the last one counts.
    c10::SetCPUAllocator(new CachingAllocator, /*priority=*/0);
    return process_cache;
  }();
  return *cache;
}

}  // namespace tandem
