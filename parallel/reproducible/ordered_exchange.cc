#include "parallel/reproducible/ordered_exchange.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <glog/logging.h>

#include <algorithm>
#include <utility>

#include "core/base/status_macros.h"

namespace tandem {

OrderedExchange::OrderedExchange(const SummationTree& tree,
                                 Communicator* replicas)
    : tree_(tree),
      replicas_(replicas),
      count_(replicas == nullptr ? 1 : replicas->size()),
      rank_(replicas == nullptr ? 0 : replicas->rank()),
      cover_(CoverOf(rank_)) {
  CHECK_EQ(tree_.leaves() % count_, 0);
}

std::vector<SummationTree::Node> OrderedExchange::CoverOf(int replica) const {
  const int each = tree_.leaves() / count_;
  return tree_.Cover(replica * each, (replica + 1) * each);
}

at::Tensor OrderedExchange::ShareOf(const at::Tensor& flat, int replica) const {
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
    const std::vector<Node> cover = CoverOf(other);
    for (size_t i = 0; i < cover.size(); ++i) {
      if (other == rank_) {
        parts->push_back({cover[i], ShareOf(sums[i], rank_)});
        continue;
      }
      parts->push_back({cover[i], at::empty_like(mine)});
      messages.push_back({false, parts->back().values, other, tag});
    }
  }
  for (int other = 0; other < count_; ++other) {
    if (other == rank_) continue;
    for (const at::Tensor& sum : sums) {
      messages.push_back({true, ShareOf(sum, other), other, tag});
    }
  }
  return Exchange(messages);
}

// The nodes of the tree, as far as they are known, to the root.
at::Tensor OrderedExchange::SumOf(const Node& node,
                                  const std::vector<Part>& parts) const {
  for (const Part& each : parts) {
    if (each.node == node) return each.values;
  }
  CHECK_GT(node.level, 0);
  const Node left = {node.level - 1, 2 * node.index};
  const at::Tensor sum = SumOf(left, parts);
  return tree_.has_sibling(left)
             ? sum.add(SumOf(SummationTree::Sibling(left), parts))
             : sum;
}

absl::Status OrderedExchange::Spread(const at::Tensor& result, int tag) const {
  std::vector<RankMessage> messages;
  for (int other = 0; other < count_; ++other) {
    if (other == rank_) continue;
    messages.push_back({false, ShareOf(result, other), other, tag});
    messages.push_back({true, ShareOf(result, rank_), other, tag});
  }
  return Exchange(messages);
}

absl::Status OrderedExchange::Sum(const std::vector<at::Tensor>& sums,
                                  int number, const at::Tensor& result) const {
  CHECK_EQ(sums.size(), cover_.size());
  const at::NoGradGuard no_grad;
  const at::Tensor mine = ShareOf(result, rank_);
  std::vector<Part> parts;
  // Two kinds of messages a buffer, and the former of several parts.
  TANDEM_RETURN_IF_ERROR(GatherParts(sums, mine, 2 * number, &parts));
  mine.copy_(SumOf(tree_.root(), parts));
  return Spread(result, 2 * number + 1);
}

}  // namespace tandem
