// Ordered reduction over replicas: a sum in the order of one summation tree,
// whoever holds which terms.

#ifndef TANDEM_PARALLEL_REPRODUCIBLE_ORDERED_EXCHANGE_H_
#define TANDEM_PARALLEL_REPRODUCIBLE_ORDERED_EXCHANGE_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "core/comm/communicator.h"
#include "core/comm/pending_collective.h"

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
  int TermsEnd(const Node& node) const;  // after its last term

  int leaves_;
  int levels_ = 1;
};

// Replica r holds the r-th contiguous part of the tree's terms, as sums of the
// nodes that cover it. Each adds up its share of the numbers and gives the
// result to all. Where a replica's terms are one node (a power of two of them)
// that moves as many bytes as an all-reduce; else up to three times as many.
class OrderedExchange {
 public:
  // Requires that the number of replicas divides the tree's leaves. `replicas`
  // must outlive this; null: there is one.
  OrderedExchange(const SummationTree& tree, Communicator* replicas);

  // Nodes of this replica's terms, in order.
  const std::vector<SummationTree::Node>& cover() const { return cover_; }

  // `sums`, one for each node of cover(), and `result` are flat, contiguous and
  // of one size and dtype on every replica; `result` shares no memory with
  // them. `number` tells apart what goes on at the same time. Requires several
  // replicas. Errors: those of Communicator.
  absl::Status Sum(const std::vector<at::Tensor>& sums, int number,
                   const at::Tensor& result) const;

 private:
  using Node = SummationTree::Node;

  // The sum of a node's terms, of a share of the numbers.
  struct Part {
    Node node;
    at::Tensor values;
  };

  std::vector<Node> ReplicaCover(int replica) const;
  at::Tensor ReplicaShare(const at::Tensor& flat, int replica) const;
  // What goes to or comes from `other`, unless it is empty.
  absl::Status Exchange(const std::vector<RankMessage>& messages) const;
  // `mine`: of what is to be summed here.
  absl::Status GatherParts(const std::vector<at::Tensor>& sums,
                           const at::Tensor& mine, int tag,
                           std::vector<Part>* parts) const;
  at::Tensor NodeSum(const Node& node, const std::vector<Part>& parts) const;
  absl::Status Spread(const at::Tensor& result, int tag) const;

  const SummationTree tree_;
  Communicator* const replicas_;
  const int count_;
  const int rank_;
  const std::vector<Node> cover_;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_REPRODUCIBLE_ORDERED_EXCHANGE_H_
