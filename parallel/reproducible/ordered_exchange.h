// Ordered reduction over replicas: a sum in the order of one tree, whoever
// holds which terms.

#ifndef TANDEM_PARALLEL_REPRODUCIBLE_ORDERED_EXCHANGE_H_
#define TANDEM_PARALLEL_REPRODUCIBLE_ORDERED_EXCHANGE_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "core/comm/communicator.h"
#include "core/comm/pending_collective.h"
#include "parallel/reproducible/summation_tree.h"

namespace tandem {

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

  std::vector<Node> CoverOf(int replica) const;
  at::Tensor ShareOf(const at::Tensor& flat, int replica) const;
  // What goes to or comes from `other`, unless it is empty.
  absl::Status Exchange(const std::vector<RankMessage>& messages) const;
  // `mine`: of what is to be summed here.
  absl::Status GatherParts(const std::vector<at::Tensor>& sums,
                           const at::Tensor& mine, int tag,
                           std::vector<Part>* parts) const;
  at::Tensor SumOf(const Node& node, const std::vector<Part>& parts) const;
  absl::Status Spread(const at::Tensor& result, int tag) const;

  const SummationTree tree_;
  Communicator* const replicas_;
  const int count_;
  const int rank_;
  const std::vector<Node> cover_;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_REPRODUCIBLE_ORDERED_EXCHANGE_H_
