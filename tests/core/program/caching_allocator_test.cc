#include "core/program/caching_allocator.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/CPUAllocator.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/base/torch_status.h"
#include "core/testing/statuses.h"
#include "tests/core/testing/on_threads.h"

namespace tandem::caching_allocator_test {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

TEST(SizeClasses, AClassHoldsTheSizesUpToItsOwn) {
  for (size_t size_class = 0; size_class + 1 < kSizeClasses; ++size_class) {
    const size_t size = SizeOfClass(size_class);
    EXPECT_EQ(SizeClass(size), size_class);
    EXPECT_EQ(SizeClass(size + 1), size_class + 1);
    EXPECT_EQ(size % 64, 0u);
  }
  EXPECT_EQ(SizeClass(0), 0u);
  EXPECT_EQ(SizeClass(1), 0u);
  EXPECT_EQ(SizeOfClass(0), 64u);
}

TEST(SizeClasses, LoseAtMostAnEighth) {
  for (size_t bytes : {size_t{513}, size_t{577}, size_t{4097}, size_t{65537},
                       3 * kMiB + 1, 1000003 * kMiB}) {
    const size_t size = SizeOfClass(SizeClass(bytes));
    EXPECT_GE(size, bytes);
    EXPECT_LE(size, bytes + bytes / 8 + 64) << bytes;
  }
  EXPECT_EQ(SizeOfClass(SizeClass(8 * kMiB)), 8 * kMiB);
}

class BlockCacheTest : public testing::TestWithParam<size_t> {};

// Below and above the size from which blocks have a mapping of their own, and
// those that are no round number.
INSTANTIATE_TEST_SUITE_P(Sizes, BlockCacheTest,
                         testing::Values(0, 1, 64, 1000, 4096, 100003, kMiB,
                                         4 * kMiB, 4 * kMiB + 1, 9 * kMiB));

TEST_P(BlockCacheTest, ABlockIsAlignedAndAllOfItCanBeWritten) {
  BlockCache cache;
  std::vector<char*> blocks;
  for (int i = 0; i < 5; ++i) {
    blocks.push_back(static_cast<char*>(cache.Allocate(GetParam())));
    ASSERT_NE(blocks.back(), nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(blocks.back()) % 64, 0u);
    std::memset(blocks.back(), 'a' + i, GetParam());
  }
  for (int i = 0; i < 5; ++i) {
    for (size_t at = 0; at < GetParam(); ++at) {
      ASSERT_EQ(blocks[i][at], 'a' + i) << at;
    }
    cache.Free(blocks[i]);
  }
}

TEST_P(BlockCacheTest, AFreedBlockServesTheNextOfItsSize) {
  BlockCache cache;
  void* const first = cache.Allocate(GetParam());
  cache.Free(first);
  EXPECT_EQ(cache.Allocate(GetParam()), first);
  EXPECT_EQ(cache.stats().allocations, 2u);
  EXPECT_EQ(cache.stats().misses, 1u);
  cache.Free(first);
}

TEST_P(BlockCacheTest, StatisticsCountUsedAndCachedBytes) {
  BlockCache cache;
  const size_t size = SizeOfClass(SizeClass(GetParam()));
  void* const a = cache.Allocate(GetParam());
  void* const b = cache.Allocate(GetParam());
  EXPECT_EQ(cache.stats().used_bytes, 2 * size);
  EXPECT_EQ(cache.stats().cached_bytes, 0u);
  cache.Free(a);
  EXPECT_EQ(cache.stats().used_bytes, size);
  EXPECT_EQ(cache.stats().cached_bytes, size);
  cache.Free(b);
  cache.Trim();
  EXPECT_EQ(cache.stats().used_bytes, 0u);
  EXPECT_EQ(cache.stats().cached_bytes, 0u);
}

TEST_P(BlockCacheTest, WorksOnAfterTrim) {
  BlockCache cache;
  cache.Free(cache.Allocate(GetParam()));
  cache.Trim();
  void* const block = cache.Allocate(GetParam());
  ASSERT_NE(block, nullptr);
  std::memset(block, 7, GetParam());
  cache.Free(block);
}

// VmRSS in bytes.
size_t ResidentBytes() {
  FILE* const file = std::fopen("/proc/self/statm", "r");
  unsigned long total = 0, resident = 0;
  EXPECT_EQ(std::fscanf(file, "%lu %lu", &total, &resident), 2);
  std::fclose(file);
  return resident * 4096;
}

TEST_P(BlockCacheTest, TrimGivesMemoryBackToTheSystem) {
  constexpr size_t kTotal = 64 * kMiB;
  if (GetParam() < 100000) return;  // below, most of a block shares its pages
  BlockCache cache;
  std::vector<void*> blocks;
  for (size_t bytes = 0; bytes < kTotal; bytes += GetParam()) {
    blocks.push_back(cache.Allocate(GetParam()));
    std::memset(blocks.back(), 1, GetParam());
  }
  for (void* block : blocks) cache.Free(block);
  const size_t before = ResidentBytes();
  cache.Trim();
  EXPECT_LT(ResidentBytes(), before - kTotal / 2);
}

TEST(BlockCache, KeepsNoMoreThanItsLimit) {
  BlockCacheOptions options;
  options.max_cached_bytes = 20 * kMiB;
  BlockCache cache(options);
  std::vector<void*> blocks;
  for (int i = 0; i < 8; ++i) {
    blocks.push_back(cache.Allocate(8 * kMiB));
    blocks.push_back(cache.Allocate(kMiB));
  }
  for (void* block : blocks) cache.Free(block);
  EXPECT_LE(cache.stats().cached_bytes, options.max_cached_bytes);
  EXPECT_GT(cache.stats().cached_bytes, options.max_cached_bytes / 2);
}

// A control group of version 2 with a limit of 1 GiB, of which so much is used.
BlockCacheOptions InGroup(const std::string& name, size_t used) {
  BlockCacheOptions options;
  options.control_groups.root = testing::TempDir() + "/" + name;
  std::filesystem::create_directories(options.control_groups.root);
  std::ofstream(options.control_groups.root + "/memory.max") << 1024 * kMiB;
  std::ofstream(options.control_groups.root + "/memory.current") << used;
  return options;
}

TEST(BlockCache, KeepsAQuarterOfTheControlGroupsLimitAtMost) {
  BlockCache cache(InGroup("limit", 0));
  std::vector<void*> blocks;
  // Address space, that nothing is written to.
  for (int i = 0; i < 10; ++i) blocks.push_back(cache.Allocate(64 * kMiB));
  for (void* block : blocks) cache.Free(block);
  EXPECT_LE(cache.stats().cached_bytes, 256 * kMiB);
  EXPECT_GT(cache.stats().cached_bytes, 128 * kMiB);
}

TEST(BlockCache, GivesAllBackWhenTheControlGroupHasLittleLeft) {
  BlockCache cache(InGroup("left", 500 * kMiB));
  cache.Free(cache.Allocate(64 * kMiB));
  EXPECT_EQ(cache.stats().cached_bytes, 64 * kMiB) << "half of it is left";
  InGroup("left", 1000 * kMiB);  // others of the group took it
  cache.Free(cache.Allocate(64 * kMiB));
  EXPECT_EQ(cache.stats().cached_bytes, 0U) << "when a block is freed";
  InGroup("left", 500 * kMiB);
  cache.Free(cache.Allocate(64 * kMiB));
  InGroup("left", 1000 * kMiB);
  void* const block = cache.Allocate(72 * kMiB);
  EXPECT_EQ(cache.stats().cached_bytes, 0U) << "when the system gives one";
  cache.Free(block);
}

TEST(BlockCache, RefusesWhatNoMachineHas) {
  BlockCache cache;
  EXPECT_EQ(cache.Allocate(size_t{1} << 50), nullptr);
  EXPECT_EQ(cache.Allocate(size_t{1} << 47), nullptr);
  EXPECT_EQ(cache.stats().used_bytes, 0u);
}

TEST(BlockCache, FreeOfNullDoesNothing) {
  BlockCache cache;
  cache.Free(nullptr);
  EXPECT_EQ(cache.stats().cached_bytes, 0u);
}

// Blocks are freed by another thread than the one that asked for them, as those
// of a prefetching loader and of backward are.
TEST(BlockCache, ThreadsShareIt) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 500;
  BlockCache cache;
  std::vector<std::vector<unsigned char*>> handed(kThreads);
  for (int round = 0; round < kRounds / 100; ++round) {
    OnThreads(kThreads, [&](int t) {
      for (unsigned char* block : handed[t]) {
        EXPECT_EQ(block[0], block[999]);
        cache.Free(block);
      }
      handed[t].clear();
      for (int i = 0; i < 100; ++i) {
        auto* block = static_cast<unsigned char*>(
            cache.Allocate(i % 10 == 0 ? 5 * kMiB : 1000 + i));
        block[0] = block[999] = static_cast<unsigned char>(t * 16 + i);
        handed[t].push_back(block);
      }
    });
    std::rotate(handed.begin(), handed.begin() + 1, handed.end());
  }
  for (const auto& blocks : handed) {
    for (unsigned char* block : blocks) cache.Free(block);
  }
  EXPECT_EQ(cache.stats().used_bytes, 0u);
}

class CachingAllocatorTest : public testing::Test {
 protected:
  BlockCache& cache_ = UseCachingAllocator();
};

TEST_F(CachingAllocatorTest, TensorsComeFromTheCache) {
  const size_t before = cache_.stats().used_bytes;
  at::Tensor tensor = at::empty({1000, 1000});
  EXPECT_EQ(cache_.stats().used_bytes,
            before + SizeOfClass(SizeClass(4000000)));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.data_ptr()) % 64, 0u);
  tensor.reset();
  EXPECT_EQ(cache_.stats().used_bytes, before);
}

TEST_F(CachingAllocatorTest, TheSecondStepAsksTheSystemForNothing) {
  const auto step = [] {
    const at::Tensor a = at::ones({300, 300});
    return (a.mm(a) + a).relu().sum().item<float>();
  };
  const float first = step();
  const uint64_t misses = cache_.stats().misses;
  EXPECT_EQ(step(), first);
  EXPECT_EQ(cache_.stats().misses, misses);
}

TEST_F(CachingAllocatorTest, ZerosAreZeroInUsedMemory) {
  at::ones({12345}).fill_(7);
  EXPECT_EQ(at::zeros({12345}).sum().item<float>(), 0);
}

TEST_F(CachingAllocatorTest, TensorsWithoutElementsNeedNoMemory) {
  EXPECT_EQ(at::empty({0, 5}).numel(), 0);
  EXPECT_EQ(at::empty({0}).data_ptr(), nullptr);
}

TEST_F(CachingAllocatorTest, ATensorThatGrowsKeepsItsValues) {
  at::Tensor tensor = at::ones({100});
  tensor.resize_({100000});
  EXPECT_EQ(tensor[99].item<float>(), 1);
}

TEST_F(CachingAllocatorTest, RawMemoryCanBeFreed) {
  c10::Allocator* const allocator = c10::GetCPUAllocator();
  const size_t before = cache_.stats().used_bytes;
  void* const memory = allocator->raw_allocate(4096);
  EXPECT_GT(cache_.stats().used_bytes, before);
  allocator->raw_deallocate(memory);
  EXPECT_EQ(cache_.stats().used_bytes, before);
}

TEST_F(CachingAllocatorTest, NoMemoryLeftIsResourceExhausted) {
  EXPECT_THAT(
      CatchTorch([] { at::empty({int64_t{1} << 47}); }),
      StatusIs(absl::StatusCode::kResourceExhausted, "can't allocate memory"));
}

TEST_F(CachingAllocatorTest, ASecondCallGivesTheSameCache) {
  EXPECT_EQ(&UseCachingAllocator(), &cache_);
}

}  // namespace
}  // namespace tandem::caching_allocator_test
