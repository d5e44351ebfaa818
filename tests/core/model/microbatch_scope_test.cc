#include "core/model/microbatch_scope.h"

#include <thread>

#include "core/context/compute_context.h"
#include "core/random/sample_scope.h"
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

TEST(MicrobatchScopeTest, ScopesOfOtherPartsOfTheContextLeaveItAlone) {
  const MicrobatchScope microbatch({1, 4});
  {
    const ComputeContext::Scope scope([](ComputeContext& context) {
      EXPECT_EQ(context.microbatch->index, 1);
      context.microbatch->index = 2;
      context.samples = Samples{7, 3, 16};
    });
    const SampleScope samples({7, 3, 32});
    EXPECT_EQ(MicrobatchScope::Current()->index, 2);
    EXPECT_EQ(SampleScope::Current()->first, 32);
  }
  EXPECT_EQ(MicrobatchScope::Current()->index, 1);
  EXPECT_EQ(MicrobatchScope::Current()->count, 4);
  EXPECT_FALSE(SampleScope::Current().has_value());
}

}  // namespace
}  // namespace tandem::microbatch_scope_test
