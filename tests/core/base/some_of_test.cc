#include "core/base/some_of.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace tandem::some_of_test {
namespace {

TEST(SomeOf, AFewAreAllNamed) {
  EXPECT_EQ(SomeOf(std::vector<std::string>{}), "");
  EXPECT_EQ(SomeOf(std::vector<std::string>{"a"}), "a");
  EXPECT_EQ(SomeOf(std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8}),
            "1, 2, 3, 4, 5, 6, 7, 8");
}

TEST(SomeOf, OfManyTheFirstAndACount) {
  const std::vector<int> sixty(60, 7);
  EXPECT_EQ(SomeOf(sixty), "7, 7, 7, 7, 7, 7, 7, 7 and 52 more");
  const std::set<std::string> names = {"c", "a", "b"};
  EXPECT_EQ(SomeOf(names, 2), "a, b and 1 more");
  EXPECT_EQ(SomeOf(names, 1, "; "), "a; and 2 more");
}

TEST(RankList, OfManyRanksSomeAreNamed) {
  EXPECT_EQ(RankList({3}), "rank 3");
  EXPECT_EQ(RankList({3, 5}), "ranks 3, 5");
  EXPECT_EQ(RankList({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}),
            "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 2 more");
}

}  // namespace
}  // namespace tandem::some_of_test
