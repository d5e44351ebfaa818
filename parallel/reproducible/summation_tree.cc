#include "parallel/reproducible/summation_tree.h"

#include <glog/logging.h>

#include <algorithm>

namespace tandem {

SummationTree::SummationTree(int leaves) : leaves_(leaves) {
  CHECK_GE(leaves, 1);
  while (CountAt(levels_ - 1) > 1) ++levels_;
}

int SummationTree::CountAt(int level) const {
  return ((leaves_ - 1) >> level) + 1;
}

int SummationTree::EndOf(const Node& node) const {
  return std::min((node.index + 1) << node.level, leaves_);
}

bool SummationTree::has_sibling(const Node& node) const {
  return Sibling(node).index < CountAt(node.level);
}

std::vector<SummationTree::Node> SummationTree::Cover(int first,
                                                      int end) const {
  CHECK(0 <= first && first <= end && end <= leaves_);
  std::vector<Node> nodes;
  while (first < end) {
    Node node = {0, first};
    while (node.level + 1 < levels_ && node.index % 2 == 0 &&
           EndOf(Parent(node)) <= end) {
      node = Parent(node);
    }
    nodes.push_back(node);
    first = EndOf(node);
  }
  return nodes;
}

}  // namespace tandem
