#include "core/random/sample_scope.h"

#include <thread>

#include "gtest/gtest.h"

namespace tandem::sample_scope_test {
namespace {

TEST(SampleScopeTest, ScopesNest) {
  EXPECT_FALSE(SampleScope::Current().has_value());
  {
    const SampleScope outer({7, 3, 16});
    {
      const SampleScope inner({7, 4, 0});
      EXPECT_EQ(SampleScope::Current()->step, 4);
    }
    ASSERT_TRUE(SampleScope::Current().has_value());
    EXPECT_EQ(SampleScope::Current()->seed, 7u);
    EXPECT_EQ(SampleScope::Current()->step, 3);
    EXPECT_EQ(SampleScope::Current()->first, 16);
  }
  EXPECT_FALSE(SampleScope::Current().has_value());
}

TEST(SampleScopeTest, IsOfOneThread) {
  const SampleScope scope({1, 2, 3});
  bool seen = true;
  std::thread([&] { seen = SampleScope::Current().has_value(); }).join();
  EXPECT_FALSE(seen);
}

}  // namespace
}  // namespace tandem::sample_scope_test
