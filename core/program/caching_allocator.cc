#include "core/program/caching_allocator.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <glog/logging.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "core/base/round_up.h"
#include "core/device/host_resources.h"

namespace tandem {
namespace {

constexpr size_t kUnit = 64;
constexpr size_t kSteps = 8;                // between two powers of two
constexpr size_t kLinear = kUnit * kSteps;  // 512, the first power of two
constexpr int kLinearBits = 9;

int BitWidth(size_t value) { return 64 - __builtin_clzll(value); }

}  // namespace

size_t SizeClass(size_t bytes) {
  if (bytes <= kLinear) return bytes == 0 ? 0 : (bytes - 1) / kUnit;
  // `last` is in [2^bits, 2^(bits + 1)), and so are all sizes of these eight.
  const size_t last = bytes - 1;
  const int bits = BitWidth(last) - 1;
  const size_t step = (last >> (bits - 3)) - kSteps;
  return kSteps * (bits - kLinearBits + 1) + step;
}

size_t SizeOfClass(size_t size_class) {
  if (size_class < kSteps) return (size_class + 1) * kUnit;
  const size_t bits = size_class / kSteps - 1 + kLinearBits;
  const size_t step = size_class % kSteps;
  return (kSteps + step + 1) << (bits - 3);
}

namespace {

constexpr size_t kHeader = 64;  // keeps what follows on a 64-byte boundary
constexpr size_t kPage = 4096;
constexpr size_t kHugePage = size_t{2} << 20;
// Greater blocks have a mapping of their own, which can go on its own.
constexpr size_t kGreatestCarved = size_t{4} << 20;
constexpr size_t kSlabBytes = size_t{32} << 20;

// How many bytes are freed, or taken from the system, between two looks at what
// the control group has left: to look costs less than to fill a hundredth of
// it.
constexpr size_t kLookEvery = size_t{64} << 20;

BlockCacheOptions WithinLimit(BlockCacheOptions options) {
  const uint64_t quarter = MemoryLimit(options.control_groups) / 4;
  options.max_cached_bytes =
      std::min<uint64_t>(options.max_cached_bytes, quarter);
  return options;
}

size_t LeastAvailable(const ControlGroups& control_groups) {
  const uint64_t limit = MemoryLimit(control_groups);
  return limit == kNoMemoryLimit ? 0 : limit / 32;
}

// A mapping that begins on a huge page; null if there is none to be had.
char* Map(size_t bytes, bool huge_pages) {
  const size_t spare = bytes + kHugePage;
  void* const mapped = mmap(nullptr, spare, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  char* const begin = static_cast<char*>(mapped);
  char* const data = reinterpret_cast<char*>(
      RoundUp(reinterpret_cast<uintptr_t>(begin), kHugePage));
  if (data > begin) munmap(begin, data - begin);
  char* const end = begin + spare;
  if (end > data + bytes) munmap(data + bytes, end - (data + bytes));
  // Only whole huge pages: the rest must not cost one. A kernel that has none
  // says so, and the memory works all the same.
  if (huge_pages) madvise(data, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
  return data;
}

}  // namespace

struct BlockCache::Block {
  size_t size_class;
  size_t mapped;  // bytes from `mapping` on; 0: carved from a slab
  char* mapping;
  bool resident;  // of a free block: does it hold memory?
  Block* next;    // of a free block

  size_t bytes() const { return SizeOfClass(size_class); }
  char* data() { return reinterpret_cast<char*>(this) + kHeader; }
  static Block* Of(void* data) {
    return reinterpret_cast<Block*>(static_cast<char*>(data) - kHeader);
  }
};

// Address space from which blocks are cut, one behind the other.
struct BlockCache::Slab {
  Slab* older;
  size_t used;
};

BlockCache::BlockCache(const BlockCacheOptions& options)
    : options_(WithinLimit(options)),
      least_available_(LeastAvailable(options.control_groups)) {
  static_assert(sizeof(Block) <= kHeader && sizeof(Slab) <= kHeader);
}

BlockCache::~BlockCache() {
  CHECK_EQ(used_bytes_.load(), 0u) << "blocks outlive their cache";
  Trim();
  absl::MutexLock lock(&slab_mutex_);
  while (slab_ != nullptr) {
    munmap(std::exchange(slab_, slab_->older), kSlabBytes);
  }
}

void* BlockCache::Allocate(size_t bytes) {
  const size_t size_class = SizeClass(bytes);
  if (size_class >= kSizeClasses) return nullptr;
  allocations_.fetch_add(1, std::memory_order_relaxed);
  Block* block = TakeFree(size_class);
  if (block == nullptr) block = NewBlock(size_class);
  if (block == nullptr) return nullptr;
  used_bytes_.fetch_add(block->bytes(), std::memory_order_relaxed);
  return block->data();
}

BlockCache::Block* BlockCache::TakeFree(size_t size_class) {
  FreeList& list = free_[size_class];
  absl::MutexLock lock(&list.mutex);
  Block* const block = list.first;
  if (block == nullptr) return nullptr;
  list.first = block->next;
  if (block->resident) cached_bytes_.fetch_sub(block->bytes());
  return block;
}

BlockCache::Block* BlockCache::NewBlock(size_t size_class) {
  misses_.fetch_add(1, std::memory_order_relaxed);
  const size_t bytes = SizeOfClass(size_class);
  TrimIfScarce(bytes);
  const bool alone = bytes > kGreatestCarved;
  Block* block = alone ? MapAlone(bytes) : Carve(bytes);
  if (block == nullptr) {
    Trim();
    block = alone ? MapAlone(bytes) : Carve(bytes);
  }
  if (block != nullptr) block->size_class = size_class;
  return block;
}

BlockCache::Block* BlockCache::Carve(size_t bytes) {
  absl::MutexLock lock(&slab_mutex_);
  if (slab_ == nullptr || slab_->used + kHeader + bytes > kSlabBytes) {
    char* const mapping = Map(kSlabBytes, options_.huge_pages);
    if (mapping == nullptr) return nullptr;
    slab_ = new (mapping) Slab{slab_, kHeader};
  }
  char* const place = reinterpret_cast<char*>(slab_) + slab_->used;
  slab_->used += kHeader + bytes;
  return new (place) Block{};
}

BlockCache::Block* BlockCache::MapAlone(size_t bytes) {
  // Tensors of one size would else lie at the same distance from a page's
  // beginning, and compete for the same few lines of the processor's caches.
  const size_t colour = misses_.load(std::memory_order_relaxed) % 16 * 192;
  const size_t mapped = RoundUp(colour + kHeader + bytes, kPage);
  char* const mapping = Map(mapped, options_.huge_pages);
  if (mapping == nullptr) return nullptr;
  Block* const block = new (mapping + colour) Block{};
  block->mapped = mapped;
  block->mapping = mapping;
  return block;
}

void BlockCache::Free(void* data) {
  if (data == nullptr) return;
  Block* const block = Block::Of(data);
  const size_t bytes = block->bytes();
  used_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
  const size_t cached = cached_bytes_.fetch_add(bytes) + bytes;
  block->resident = true;
  if (cached > options_.max_cached_bytes && Release(block)) return;
  Push(block);
  TrimIfScarce(bytes);
}

void BlockCache::TrimIfScarce(size_t bytes) {
  if (least_available_ == 0) return;
  const uint64_t before = moved_bytes_.fetch_add(bytes);
  if (before / kLookEvery == (before + bytes) / kLookEvery) return;
  if (AvailableMemory(options_.control_groups) < least_available_) Trim();
}

void BlockCache::Push(Block* block) {
  FreeList& list = free_[block->size_class];
  absl::MutexLock lock(&list.mutex);
  block->next = std::exchange(list.first, block);
}

bool BlockCache::Release(Block* block) {
  cached_bytes_.fetch_sub(block->bytes());
  if (block->mapped > 0) {
    munmap(block->mapping, block->mapped);
    return true;
  }
  block->resident = false;
  const auto begin = reinterpret_cast<uintptr_t>(block->data());
  const uintptr_t first = RoundUp(begin, kPage);
  const uintptr_t last = (begin + block->bytes()) / kPage * kPage;
  if (last > first) {
    madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
  }
  return false;
}

void BlockCache::Trim() {
  for (FreeList& list : free_) {
    absl::MutexLock lock(&list.mutex);
    Block* kept = nullptr;
    while (list.first != nullptr) {
      Block* const block = std::exchange(list.first, list.first->next);
      if (block->resident && Release(block)) continue;
      block->next = std::exchange(kept, block);
    }
    list.first = kept;
  }
}

BlockCache::Stats BlockCache::stats() const {
  return {used_bytes_.load(), cached_bytes_.load(), allocations_.load(),
          misses_.load()};
}

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
