#include "parallel/reproducible/ordered_exchange.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <glog/logging.h>

#include <algorithm>
#include <utility>

#include "core/base/status_macros.h"

namespace tandem {

SummationTree::SummationTree(int leaves) : leaves_(leaves) {
  CHECK_GE(leaves, 1);
  while (CountAt(levels_ - 1) > 1) ++levels_;
}

int SummationTree::CountAt(int level) const {
  return ((leaves_ - 1) >> level) + 1;
}

int SummationTree::TermsEnd(const Node& node) const {
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
           TermsEnd(Parent(node)) <= end) {
      node = Parent(node);
    }
    nodes.push_back(node);
    first = TermsEnd(node);
  }
  return nodes;
}

OrderedExchange::OrderedExchange(const SummationTree& tree,
                                 Communicator* replicas)
    : tree_(tree),
      replicas_(replicas),
      count_(replicas == nullptr ? 1 : replicas->size()),
      rank_(replicas == nullptr ? 0 : replicas->rank()),
      cover_(ReplicaCover(rank_)) {
  CHECK_EQ(tree_.leaves() % count_, 0);
}

std::vector<SummationTree::Node> OrderedExchange::ReplicaCover(
    int replica) const {
  const int each = tree_.leaves() / count_;
  return tree_.Cover(replica * each, (replica + 1) * each);
}

at::Tensor OrderedExchange::ReplicaShare(const at::Tensor& flat,
                                         int replica) const {
  constexpr int64_t kUnit = 16;  // elements: none of a vector apart
  const int64_t size = flat.numel();
  const int64_t share = (size / kUnit + count_) / count_ * kUnit;
  const int64_t first = std::min(replica * share, size);
  return flat.narrow(0, first, std::min(share, size - first));
}

// All of them together: each rank of a group receives from the others what they
// send when they have received.
absl::Status OrderedExchange::Exchange(
    const std::vector<RankMessage>& messages) const {
  TANDEM_ASSIGN_OR_RETURN(PendingCollective pending,
                          replicas_->StartMessages(messages));
  return pending.Wait();
}

absl::Status OrderedExchange::GatherParts(const std::vector<at::Tensor>& sums,
                                          const at::Tensor& mine, int tag,
                                          std::vector<Part>* parts) const {
  std::vector<RankMessage> messages;
  for (int other = 0; other < count_; ++other) {
    const std::vector<Node> cover = ReplicaCover(other);
    for (size_t i = 0; i < cover.size(); ++i) {
      if (other == rank_) {
        parts->push_back({cover[i], ReplicaShare(sums[i], rank_)});
        continue;
      }
      parts->push_back({cover[i], at::empty_like(mine)});
      messages.push_back({false, parts->back().values, other, tag});
    }
  }
  for (int other = 0; other < count_; ++other) {
    if (other == rank_) continue;
    for (const at::Tensor& sum : sums) {
      messages.push_back({true, ReplicaShare(sum, other), other, tag});
    }
  }
  return Exchange(messages);
}

// The nodes of the tree, as far as they are known, to the root.
at::Tensor OrderedExchange::NodeSum(const Node& node,
                                    const std::vector<Part>& parts) const {
  for (const Part& each : parts) {
    if (each.node == node) return each.values;
  }
  CHECK_GT(node.level, 0);
  const Node left = {node.level - 1, 2 * node.index};
  const at::Tensor sum = NodeSum(left, parts);
  return tree_.has_sibling(left)
             ? sum.add(NodeSum(SummationTree::Sibling(left), parts))
             : sum;
}

absl::Status OrderedExchange::Spread(const at::Tensor& result, int tag) const {
  std::vector<RankMessage> messages;
  for (int other = 0; other < count_; ++other) {
    if (other == rank_) continue;
    messages.push_back({false, ReplicaShare(result, other), other, tag});
    messages.push_back({true, ReplicaShare(result, rank_), other, tag});
  }
  return Exchange(messages);
}

absl::Status OrderedExchange::Sum(const std::vector<at::Tensor>& sums,
                                  int number, const at::Tensor& result) const {
  CHECK_EQ(sums.size(), cover_.size());
  const at::NoGradGuard no_grad;
  const at::Tensor mine = ReplicaShare(result, rank_);
  std::vector<Part> parts;
  // Two kinds of messages a buffer, and the former of several parts.
  TANDEM_RETURN_IF_ERROR(GatherParts(sums, mine, 2 * number, &parts));
  mine.copy_(NodeSum(tree_.root(), parts));
  return Spread(result, 2 * number + 1);
}

}  // namespace tandem
