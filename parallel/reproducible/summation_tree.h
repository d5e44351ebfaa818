// Summation tree: binary, over the terms of a sum, so that the sum has the same
// bits whoever holds which terms.

#ifndef TANDEM_PARALLEL_REPRODUCIBLE_SUMMATION_TREE_H_
#define TANDEM_PARALLEL_REPRODUCIBLE_SUMMATION_TREE_H_

#include <vector>

namespace tandem {

// A tree of `leaves` terms, numbered from 0. Level 0 are the terms; node i of a
// level is the sum of nodes 2i and 2i + 1 of the level below, or node 2i alone
// where it is the last. The root is the only node of the top level.
class SummationTree {
 public:
  struct Node {
    int level = 0;
    int index = 0;

    bool operator==(const Node& other) const {
      return level == other.level && index == other.index;
    }
  };

  // Requires leaves >= 1.
  explicit SummationTree(int leaves);

  int leaves() const { return leaves_; }
  int levels() const { return levels_; }
  Node root() const { return {levels_ - 1, 0}; }

  // Has the parent of `node` another child? Requires a node below the root.
  bool has_sibling(const Node& node) const;
  // Requires has_sibling.
  static Node Sibling(const Node& node) { return {node.level, node.index ^ 1}; }
  static Node Parent(const Node& node) {
    return {node.level + 1, node.index / 2};
  }

  // The fewest nodes that together hold the terms first to end - 1 and no
  // others, in order. Requires 0 <= first <= end <= leaves.
  std::vector<Node> Cover(int first, int end) const;

 private:
  int CountAt(int level) const;
  int EndOf(const Node& node) const;  // after its last term

  int leaves_;
  int levels_ = 1;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_REPRODUCIBLE_SUMMATION_TREE_H_
