#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <vector>

#include "parallel/reproducible/ordered_exchange.h"

namespace tandem::summation_tree_test {
namespace {

using Node = SummationTree::Node;
using testing::ElementsAre;

// The terms below a node, by the definition of the tree.
std::vector<int> TermsOf(const SummationTree& tree, const Node& node) {
  if (node.level == 0) return {node.index};
  const Node left = {node.level - 1, 2 * node.index};
  std::vector<int> terms = TermsOf(tree, left);
  if (tree.has_sibling(left)) {
    for (int term : TermsOf(tree, SummationTree::Sibling(left))) {
      terms.push_back(term);
    }
  }
  return terms;
}

TEST(SummationTreeTest, TheRootHoldsAllTermsOnceAndInOrder) {
  for (int leaves : {1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 31, 64}) {
    const SummationTree tree(leaves);
    const std::vector<int> terms = TermsOf(tree, tree.root());
    ASSERT_EQ(terms.size(), static_cast<size_t>(leaves));
    for (int i = 0; i < leaves; ++i) EXPECT_EQ(terms[i], i);
  }
}

TEST(SummationTreeTest, LevelsAreAsFewAsCanBe) {
  EXPECT_EQ(SummationTree(1).levels(), 1);
  EXPECT_EQ(SummationTree(2).levels(), 2);
  EXPECT_EQ(SummationTree(3).levels(), 3);
  EXPECT_EQ(SummationTree(4).levels(), 3);
  EXPECT_EQ(SummationTree(5).levels(), 4);
  EXPECT_EQ(SummationTree(8).levels(), 4);
}

TEST(SummationTreeTest, TheLastOfAnOddNumberHasNoSibling) {
  const SummationTree tree(5);
  EXPECT_TRUE(tree.has_sibling({0, 0}));
  EXPECT_TRUE(tree.has_sibling({0, 3}));
  EXPECT_FALSE(tree.has_sibling({0, 4}));
  EXPECT_FALSE(tree.has_sibling({1, 2}));
  EXPECT_TRUE(tree.has_sibling({2, 1}));
}

TEST(SummationTreeTest, CoversOfPowersOfTwoAreOneNode) {
  const SummationTree tree(8);
  EXPECT_THAT(tree.Cover(0, 8), ElementsAre(tree.root()));
  EXPECT_THAT(tree.Cover(4, 8), ElementsAre(Node{2, 1}));
  EXPECT_THAT(tree.Cover(2, 4), ElementsAre(Node{1, 1}));
  EXPECT_THAT(tree.Cover(5, 6), ElementsAre(Node{0, 5}));
  EXPECT_THAT(tree.Cover(3, 3), ElementsAre());
}

TEST(SummationTreeTest, CoversOfThirdsAreSeveral) {
  const SummationTree tree(6);
  EXPECT_THAT(tree.Cover(0, 3), ElementsAre(Node{1, 0}, Node{0, 2}));
  EXPECT_THAT(tree.Cover(3, 6), ElementsAre(Node{0, 3}, Node{2, 1}));
}

// Whoever holds which terms: their covers' terms, one after the other, are all
// terms, and no cover could be smaller.
TEST(SummationTreeTest, CoversOfEqualSharesHoldEachTermOnce) {
  int tried = 0;
  for (int leaves = 1; leaves <= 24; ++leaves) {
    const SummationTree tree(leaves);
    for (int shares = 1; shares <= leaves; ++shares) {
      if (leaves % shares != 0) continue;
      const int size = leaves / shares;
      std::vector<int> terms;
      for (int i = 0; i < shares; ++i) {
        const std::vector<Node> cover = tree.Cover(i * size, (i + 1) * size);
        for (const Node& node : cover) {
          for (int term : TermsOf(tree, node)) terms.push_back(term);
        }
        for (size_t n = 1; n < cover.size(); ++n) {
          const bool siblings =
              tree.has_sibling(cover[n]) &&
              SummationTree::Sibling(cover[n]) == cover[n - 1];
          EXPECT_FALSE(siblings);
        }
      }
      ASSERT_EQ(terms.size(), static_cast<size_t>(leaves));
      for (int i = 0; i < leaves; ++i) EXPECT_EQ(terms[i], i);
      ++tried;
    }
  }
  EXPECT_EQ(tried, 84);
}

}  // namespace
}  // namespace tandem::summation_tree_test
