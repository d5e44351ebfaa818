#include "core/memory/device_memory.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/util/Exception.h>

#include <string>
#include <vector>

#include "core/base/torch_status.h"
#include "core/device/memory_category.h"
#include "core/memory/state_bytes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/testing/on_threads.h"

namespace tandem::device_memory_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A type of which this process has no other devices; PrivateUse1 is that of
// simulated ones.
constexpr c10::DeviceType kType = c10::DeviceType::XPU;

// A caching allocator of devices 0 and 1, which knows what a test tells it.
class FakeAllocator : public c10::DeviceAllocator {
 public:
  struct Numbers {
    int64_t allocated, most_allocated, reserved, most_reserved;
  };

  bool initialized() override { return initialized_; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override {}
  c10::DataPtr allocate(size_t) override { return {}; }
  void copy_data(void*, const void*, size_t) const override {}

  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(
      c10::DeviceIndex device) override {
    c10::CachingDeviceAllocator::DeviceStats stats;
    const Numbers& known = numbers_[device];
    stats.allocated_bytes[0].current = known.allocated;
    stats.allocated_bytes[0].peak = known.most_allocated;
    stats.reserved_bytes[0].current = known.reserved;
    stats.reserved_bytes[0].peak = known.most_reserved;
    return stats;
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    if (device == 0) return {256, 1 << 20};
    return c10::DeviceAllocator::getMemoryInfo(device);  // which throws
  }

  bool initialized_ = true;
  Numbers numbers_[2] = {{1024, 2048, 4096, 8192}, {1, 2, 3, 4}};
};

FakeAllocator& Fake() {
  static auto* const allocator = [] {
    auto* made = new FakeAllocator;
    c10::SetAllocator(kType, made);
    return made;
  }();
  return *allocator;
}

c10::Device Device(int index) {
  return c10::Device(kType, static_cast<c10::DeviceIndex>(index));
}

MemoryStatistics SomeBooks(int device) {
  MemoryStatistics statistics;
  statistics.now.Add(MemoryCategory::kParameters, 10 + device);
  statistics.NotePeak();
  return statistics;
}

class DeviceMemoryTest : public testing::Test {
 protected:
  DeviceMemoryTest() { Fake().initialized_ = true; }
  ~DeviceMemoryTest() override { RegisterMemoryStatistics(kType, nullptr); }
};

TEST_F(DeviceMemoryTest, OfTheCpuAndOfAnUnusedDeviceNothingIsKnown) {
  EXPECT_FALSE(MemoryOf(c10::kCPU).has_value());
  Fake().initialized_ = false;
  EXPECT_FALSE(MemoryOf(Device(0)).has_value());
  EXPECT_FALSE(MemoryOf(c10::Device(c10::DeviceType::Meta, 0)).has_value());
}

TEST_F(DeviceMemoryTest, WithoutBooksTheAllocatorCountsAllAsOther) {
  const auto memory = MemoryOf(Device(0));
  ASSERT_TRUE(memory.has_value());
  EXPECT_FALSE(memory->has_categories);
  EXPECT_EQ(memory->statistics.now.total, 1024);
  EXPECT_EQ(memory->reserved, 4096);
  EXPECT_EQ(memory->free, 256);
  EXPECT_EQ(DescribePeak(*memory),
            "2 KiB: other 2 KiB; 8 KiB of 1 MiB reserved");
}

TEST_F(DeviceMemoryTest, BooksSayWhatItIsForAndTheAllocatorWhatItTook) {
  RegisterMemoryStatistics(kType, &SomeBooks);
  const auto memory = MemoryOf(Device(1));
  ASSERT_TRUE(memory.has_value());
  EXPECT_TRUE(memory->has_categories);
  EXPECT_EQ(memory->statistics.now.total, 11);
  EXPECT_EQ(memory->total, 0) << "the allocator does not know";
  EXPECT_EQ(DescribePeak(*memory), "11 B: parameters 11 B; 4 B reserved");
}

TEST_F(DeviceMemoryTest, BooksAloneWillDo) {
  RegisterMemoryStatistics(kType, &SomeBooks);
  Fake().initialized_ = false;
  const auto memory = MemoryOf(Device(0));
  ASSERT_TRUE(memory.has_value());
  EXPECT_EQ(DescribePeak(*memory), "10 B: parameters 10 B");
}

TEST(MemoryUseTest, IsToldByCategoryMostFirst) {
  MemoryUse use;
  EXPECT_EQ(DescribeUse(use), "nothing");
  use.Add(MemoryCategory::kActivations, 1024);
  use.Add(MemoryCategory::kParameters, 3 << 20);
  use.Add(MemoryCategory::kGradients, 7);
  EXPECT_EQ(DescribeUse(use),
            "parameters 3 MiB, activations 1 KiB, gradients 7 B");
  use.Add(MemoryCategory::kActivations, -1024);
  EXPECT_EQ(DescribeUse(use), "parameters 3 MiB, gradients 7 B");
  EXPECT_EQ(use.total, (3 << 20) + 7);
}

TEST(MemoryUseTest, ThePeakKeepsWhatItWasFor) {
  MemoryStatistics statistics;
  statistics.now.Add(MemoryCategory::kGradients, 100);
  statistics.NotePeak();
  statistics.now.Add(MemoryCategory::kGradients, -100);
  statistics.now.Add(MemoryCategory::kOptimizer, 100);
  statistics.NotePeak();
  EXPECT_EQ(DescribeUse(statistics.peak), "gradients 100 B");
  statistics.now.Add(MemoryCategory::kOther, 1);
  statistics.NotePeak();
  EXPECT_EQ(DescribeUse(statistics.peak), "optimizer 100 B, other 1 B");
}

using Entry = AllocationStatistics::Entry;

Entry Of(Entry::Action action, int device, size_t address, size_t size) {
  return Entry(action, static_cast<c10::DeviceIndex>(device), address, size,
               /*stream=*/nullptr, /*mempool=*/{0, 0}, /*time=*/{});
}

void Allocate(AllocationStatistics& statistics, MemoryCategory category,
              size_t address, size_t size, int device = 0) {
  const MemoryCategoryScope scope(category);
  statistics.Note(Of(Entry::ALLOC, device, address, size));
}

TEST(AllocationBooksTest, CountsByTheScopeOfWhoeverAllocates) {
  AllocationStatistics statistics;
  EXPECT_EQ(DescribeUse(statistics.Of(0).now), "nothing");
  Allocate(statistics, MemoryCategory::kParameters, 1000, 512);
  Allocate(statistics, MemoryCategory::kActivations, 2000, 7);
  statistics.Note(Of(Entry::ALLOC, 0, 3000, 1));
  EXPECT_EQ(DescribeUse(statistics.Of(0).now),
            "parameters 512 B, activations 7 B, other 1 B");
  statistics.Note(Of(Entry::FREE_REQUESTED, 0, 2000, 7));
  EXPECT_EQ(statistics.Of(0).now.total, 520) << "another stream may use it yet";
  statistics.Note(Of(Entry::FREE_COMPLETED, 0, 2000, 7));
  EXPECT_EQ(DescribeUse(statistics.Of(0).now), "parameters 512 B, other 1 B");
  EXPECT_EQ(statistics.Of(0).peak.total, 520);
}

TEST(AllocationBooksTest, DevicesHaveTheirOwn) {
  AllocationStatistics statistics;
  Allocate(statistics, MemoryCategory::kOptimizer, 1000, 3, /*device=*/0);
  Allocate(statistics, MemoryCategory::kGradients, 1000, 5, /*device=*/1);
  statistics.Note(Of(Entry::FREE_COMPLETED, 0, 1000, 3));
  EXPECT_EQ(statistics.Of(0).now.total, 0);
  EXPECT_EQ(DescribeUse(statistics.Of(1).now), "gradients 5 B");
}

TEST(AllocationBooksTest, WhatTheyWereNotToldOfIsNotMissed) {
  AllocationStatistics statistics;
  statistics.Note(Of(Entry::FREE_COMPLETED, 0, 1000, 3));  // from before
  EXPECT_EQ(statistics.Of(0).now.total, 0);
  Allocate(statistics, MemoryCategory::kOther, 1000, 3);
  Allocate(statistics, MemoryCategory::kOther, 1000,
           5);  // the end was not told
  statistics.Note(Of(Entry::SEGMENT_ALLOC, 0, 0, 1 << 20));
  EXPECT_EQ(statistics.Of(0).now.total, 5);
}

TEST(AllocationBooksTest, ThreadsCountTogether) {
  AllocationStatistics statistics;
  OnThreads(3, [&statistics](size_t thread) {
    for (size_t i = 1; i <= 101; ++i) {
      Allocate(statistics, MemoryCategory::kGradients, thread * 1000 + i, i);
      if (i % 2 == 0) {
        statistics.Note(Of(Entry::FREE_COMPLETED, 0, thread * 1000 + i, i));
      }
    }
  });
  EXPECT_EQ(statistics.Of(0).now.total, 3 * 51 * 51);  // 1 + 3 + ... + 101
}

AllocationStatistics& BooksOfProcess() {
  static auto* statistics = new AllocationStatistics;
  return *statistics;
}

// What a caching allocator tells and throws when there is no memory.
void RunOut() {
  BooksOfProcess().Note(Of(Entry::OOM, 2, /*address: free=*/64, 1 << 20));
  TORCH_CHECK_WITH(OutOfMemoryError, false,
                   "CUDA out of memory. Tried to allocate 1.00 MiB. GPU 2 has "
                   "a total capacity of 79.10 GiB");
}

TEST(AllocationBooksTest, AnOutOfMemoryErrorTellsWhatWasHeldThen) {
  EXPECT_EQ(BooksOfProcess().TakeFailure("cuda"), "");
  SetOutOfMemoryNote([] { return BooksOfProcess().TakeFailure("cuda"); });
  Allocate(BooksOfProcess(), MemoryCategory::kParameters, 1, 3 << 20, 2);
  Allocate(BooksOfProcess(), MemoryCategory::kActivations, 2, 1 << 20, 2);
  const absl::Status status = CatchTorch([] { RunOut(); }, "layer fc");
  BooksOfProcess().Note(Of(Entry::FREE_COMPLETED, 2, 2, 1 << 20));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr("layer fc: CUDA out of memory. Tried to allocate"),
            HasSubstr("total capacity of 79.10 GiB; cuda:2 held 4 MiB then "
                      "(parameters 3 MiB, activations 1 MiB): take a smaller "
                      "batch")));
  // Another error is another one's: by then it held less.
  EXPECT_EQ(NoteOnOutOfMemory(), "");
  EXPECT_THAT(std::string(CatchTorch([] { RunOut(); }, "").message()),
              HasSubstr("cuda:2 held 3 MiB then (parameters 3 MiB)"));
  SetOutOfMemoryNote(nullptr);
  EXPECT_EQ(NoteOnOutOfMemory(), "");
}

TEST(ResultCategoryTest, WhatIsSaidCountsElseOther) {
  EXPECT_EQ(CategoryOfResults(), MemoryCategory::kOther);
  const MemoryCategoryScope scope(MemoryCategory::kParameters);
  EXPECT_EQ(CategoryOfResults(), MemoryCategory::kParameters);
}

TEST(ResultCategoryTest, ABackwardMakesGradientsUnlessSomethingIsSaid) {
  std::vector<MemoryCategory> seen;
  const at::Tensor x = at::ones({3}).requires_grad_(true);
  at::Tensor y = x.mul(2);
  y.register_hook([&seen](const at::Tensor& grad) {
    seen.push_back(CategoryOfResults());
    const MemoryCategoryScope scope(MemoryCategory::kActivations);
    seen.push_back(CategoryOfResults());
    return grad;
  });
  y.sum().backward();
  EXPECT_EQ(seen, std::vector<MemoryCategory>({MemoryCategory::kGradients,
                                               MemoryCategory::kActivations}));
  EXPECT_EQ(CategoryOfResults(), MemoryCategory::kOther);
}

TEST(StateBytesTest, OfATrainedParameter) {
  StatePerParameter adam_of_four;
  adam_of_four.optimizer_states = 2;
  adam_of_four.optimizer_shares = 4;
  adam_of_four.further = 1;
  const StateBytes state =
      ComputeStateBytes(400, 200, /*is_trained=*/true, adam_of_four);
  EXPECT_EQ(state.parameters, 600);
  EXPECT_EQ(state.gradients, 400);
  EXPECT_EQ(state.optimizer, 2 * 400 / 4 + 400);
  EXPECT_EQ(state.total(), 600 + 400 + 600);
}

TEST(StateBytesTest, OfAFrozenOneAreItsValues) {
  EXPECT_EQ(ComputeStateBytes(400, 0, /*is_trained=*/false, {}).total(), 400);
}

}  // namespace
}  // namespace tandem::device_memory_test
