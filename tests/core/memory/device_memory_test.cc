#include "core/memory/device_memory.h"

#include <c10/core/CachingDeviceAllocator.h>

#include "gtest/gtest.h"

namespace tandem {
namespace {

constexpr c10::DeviceType kType = c10::DeviceType::PrivateUse1;

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

MemoryBooks SomeBooks(int device) {
  MemoryBooks books;
  books.now.Add(MemoryCategory::kParameters, 10 + device);
  books.NotePeak();
  return books;
}

class DeviceMemoryTest : public testing::Test {
 protected:
  DeviceMemoryTest() { Fake().initialized_ = true; }
  ~DeviceMemoryTest() override { RegisterMemoryBooks(kType, nullptr); }
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
  EXPECT_EQ(memory->books.now.total, 1024);
  EXPECT_EQ(memory->reserved, 4096);
  EXPECT_EQ(memory->free, 256);
  EXPECT_EQ(DescribePeak(*memory),
            "2 KiB: other 2 KiB; 8 KiB of 1 MiB reserved");
}

TEST_F(DeviceMemoryTest, BooksSayWhatItIsForAndTheAllocatorWhatItTook) {
  RegisterMemoryBooks(kType, &SomeBooks);
  const auto memory = MemoryOf(Device(1));
  ASSERT_TRUE(memory.has_value());
  EXPECT_TRUE(memory->has_categories);
  EXPECT_EQ(memory->books.now.total, 11);
  EXPECT_EQ(memory->total, 0) << "the allocator does not know";
  EXPECT_EQ(DescribePeak(*memory), "11 B: parameters 11 B; 4 B reserved");
}

TEST_F(DeviceMemoryTest, BooksAloneWillDo) {
  RegisterMemoryBooks(kType, &SomeBooks);
  Fake().initialized_ = false;
  const auto memory = MemoryOf(Device(0));
  ASSERT_TRUE(memory.has_value());
  EXPECT_EQ(DescribePeak(*memory), "10 B: parameters 10 B");
}

}  // namespace
}  // namespace tandem
