#include "core/model/microbatch_scope.h"

#include <thread>

#include "gtest/gtest.h"

namespace tandem::microbatch_scope_test {
namespace {

TEST(MicrobatchScopeTest, ScopesNestAndAreOfOneThread) {
  EXPECT_FALSE(MicrobatchScope::Current().has_value());
  {
    const MicrobatchScope outer({1, 4, false, true});
    {
      const MicrobatchScope inner({1, 4, true, true});
      EXPECT_TRUE(MicrobatchScope::Current()->is_recomputed);
    }
    ASSERT_TRUE(MicrobatchScope::Current().has_value());
    EXPECT_FALSE(MicrobatchScope::Current()->is_recomputed);
    EXPECT_EQ(MicrobatchScope::Current()->count, 4);
    bool seen = true;
    std::thread([&] { seen = MicrobatchScope::Current().has_value(); }).join();
    EXPECT_FALSE(seen);
  }
  EXPECT_FALSE(MicrobatchScope::Current().has_value());
}

}  // namespace
}  // namespace tandem::microbatch_scope_test
