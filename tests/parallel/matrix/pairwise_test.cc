#include "tests/parallel/matrix/pairwise.h"

#include <gtest/gtest.h>

namespace tandem::pairwise_test {
namespace {

bool Any(const Combination&) { return true; }

TEST(PairwiseTest, AllCombinations) {
  EXPECT_EQ(AllCombinations({2, 3}, Any),
            std::vector<Combination>(
                {{0, 0}, {0, 1}, {0, 2}, {1, 0}, {1, 1}, {1, 2}}));
  EXPECT_EQ(
      AllCombinations(
          {2, 2}, [](const Combination& each) { return each[0] != each[1]; }),
      std::vector<Combination>({{0, 1}, {1, 0}}));
}

TEST(PairwiseTest, CoversEveryPairWithFew) {
  const auto all = AllCombinations({4, 3, 2, 5}, Any);
  EXPECT_EQ(all.size(), 120u);
  const auto cover = PairwiseCover(all);
  EXPECT_EQ(CountPairs(cover), CountPairs(all));
  EXPECT_EQ(CountPairs(all), 12u + 8 + 20 + 6 + 15 + 10);
  EXPECT_GE(cover.size(), 20u);  // 4 x 5 pairs of two settings
  EXPECT_LE(cover.size(), 26u);
}

TEST(PairwiseTest, TakesValidOnesAlone) {
  const auto valid = [](const Combination& each) {
    return each[0] == 0 || each[1] != 1;
  };
  const auto all = AllCombinations({3, 3, 3}, valid);
  const auto cover = PairwiseCover(all);
  EXPECT_EQ(CountPairs(cover), CountPairs(all));
  for (const Combination& each : cover) EXPECT_TRUE(valid(each));
}

}  // namespace
}  // namespace tandem::pairwise_test
