#include "core/elastic/rank_counts.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::rank_counts_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

RankCounts::Fits MultipleOf(int pipe) {
  return [=](int ranks) {
    return ranks % pipe == 0
               ? absl::OkStatus()
               : absl::InvalidArgumentError(
                     absl::StrCat("--pipe=", pipe, " does not divide ", ranks));
  };
}

TEST(RankCountsTest, AllThatFit) {
  const auto counts = RankCounts::Of({1, 7}, 1, nullptr);
  EXPECT_EQ(counts->most(), 7);
  EXPECT_EQ(counts->AtMost(3), 3);
  EXPECT_EQ(counts->AtMost(100), 7);
  EXPECT_EQ(counts->AtMost(0), std::nullopt);
  EXPECT_EQ(RankCounts::Of({3, 3}, 1, nullptr)->ToString(), "3");
}

TEST(RankCountsTest, ALayoutLeavesSomeOut) {
  const auto counts = RankCounts::Of({1, 6}, 1, MultipleOf(2));
  EXPECT_EQ(counts->ToString(), "2, 4 or 6");
  EXPECT_EQ(counts->AtMost(5), 4);
  EXPECT_EQ(counts->AtMost(1), std::nullopt);
}

TEST(RankCountsTest, NodesComeWhole) {
  EXPECT_EQ(RankCounts::Of({1, 9}, 3, nullptr)->ToString(), "3, 6 or 9");
  EXPECT_EQ(RankCounts::Of({4, 9}, 3, MultipleOf(3))->ToString(), "6 or 9");
}

TEST(RankCountsTest, TheMostMustFit) {
  EXPECT_EQ(RankCounts::Of({1, 7}, 1, MultipleOf(2)).status().message(),
            "--pipe=2 does not divide 7");
}

TEST(RankCountsTest, ALayoutThatCannotBeCutIsSaid) {
  const auto counts = RankCounts::Of({3, 4}, 1, MultipleOf(4));
  EXPECT_THAT(std::string(counts.status().message()),
              AllOf(HasSubstr("of 3 to 4 ranks this job can run on 4 alone"),
                    HasSubstr("--pipe=4 does not divide 3")));
}

}  // namespace
}  // namespace tandem::rank_counts_test
