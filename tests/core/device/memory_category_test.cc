#include "core/device/memory_category.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <thread>

namespace tandem::memory_category_test {
namespace {

TEST(MemoryCategoryTest, NamesDiffer) {
  std::set<std::string> names;
  for (int i = 0; i < kMemoryCategories; ++i) {
    names.emplace(MemoryCategoryName(static_cast<MemoryCategory>(i)));
  }
  EXPECT_EQ(names,
            (std::set<std::string>{"other", "parameters", "gradients",
                                   "optimizer", "activations", "temporaries"}));
  EXPECT_EQ(MemoryCategoryName(static_cast<MemoryCategory>(kMemoryCategories)),
            "unknown");
}

TEST(MemoryCategoryScopeTest, Nests) {
  EXPECT_EQ(CurrentMemoryCategory(), MemoryCategory::kOther);
  {
    const MemoryCategoryScope outer(MemoryCategory::kParameters);
    EXPECT_EQ(CurrentMemoryCategory(), MemoryCategory::kParameters);
    {
      const MemoryCategoryScope inner(MemoryCategory::kOptimizer);
      EXPECT_EQ(CurrentMemoryCategory(), MemoryCategory::kOptimizer);
    }
    EXPECT_EQ(CurrentMemoryCategory(), MemoryCategory::kParameters);
  }
  EXPECT_EQ(CurrentMemoryCategory(), MemoryCategory::kOther);
}

TEST(MemoryCategoryScopeTest, EndsWithAnException) {
  try {
    const MemoryCategoryScope scope(MemoryCategory::kGradients);
    throw 1;
  } catch (int) {
  }
  EXPECT_EQ(CurrentMemoryCategory(), MemoryCategory::kOther);
}

TEST(MemoryCategoryScopeTest, IsOfItsThread) {
  const MemoryCategoryScope scope(MemoryCategory::kActivations);
  MemoryCategory seen = MemoryCategory::kParameters;
  std::thread([&] { seen = CurrentMemoryCategory(); }).join();
  EXPECT_EQ(seen, MemoryCategory::kOther);
  std::thread([] {
    const MemoryCategoryScope of_thread(MemoryCategory::kGradients);
  }).join();
  EXPECT_EQ(CurrentMemoryCategory(), MemoryCategory::kActivations);
}

}  // namespace
}  // namespace tandem::memory_category_test
