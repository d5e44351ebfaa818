#include "core/program/caching_allocator.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/CPUAllocator.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>

#include "core/base/torch_status.h"

namespace tandem::caching_allocator_test {
namespace {

using testing::HasSubstr;

class CachingAllocatorTest : public testing::Test {
 protected:
  BlockCache& cache_ = UseCachingAllocator();
};

TEST_F(CachingAllocatorTest, TensorsComeFromTheCache) {
  const size_t before = cache_.stats().used_bytes;
  at::Tensor tensor = at::empty({1000, 1000});
  EXPECT_EQ(cache_.stats().used_bytes,
            before + SizeOfClass(SizeClassOf(4000000)));
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
  const absl::Status status = CatchTorch([] { at::empty({int64_t{1} << 47}); });
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("can't allocate memory"));
}

TEST_F(CachingAllocatorTest, ASecondCallGivesTheSameCache) {
  EXPECT_EQ(&UseCachingAllocator(), &cache_);
}

}  // namespace
}  // namespace tandem::caching_allocator_test
