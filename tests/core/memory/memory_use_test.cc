#include "core/memory/device_memory.h"
#include "gtest/gtest.h"

namespace tandem::memory_use_test {
namespace {

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
  MemoryBooks books;
  books.now.Add(MemoryCategory::kGradients, 100);
  books.NotePeak();
  books.now.Add(MemoryCategory::kGradients, -100);
  books.now.Add(MemoryCategory::kOptimizer, 100);
  books.NotePeak();
  EXPECT_EQ(DescribeUse(books.peak), "gradients 100 B");
  books.now.Add(MemoryCategory::kOther, 1);
  books.NotePeak();
  EXPECT_EQ(DescribeUse(books.peak), "optimizer 100 B, other 1 B");
}

}  // namespace
}  // namespace tandem::memory_use_test
