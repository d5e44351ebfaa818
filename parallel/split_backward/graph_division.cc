#include "parallel/split_backward/graph_division.h"

#include <c10/util/Type.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <cstddef>
#include <string>
#include <typeinfo>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "core/model/split_node.h"
#include "parallel/activation_checkpointing/reentrant_checkpoint.h"

namespace tandem {
namespace {

using torch::autograd::AccumulateGrad;
using torch::autograd::Edge;
using torch::autograd::edge_list;
using torch::autograd::Node;

bool IsAccumulator(const Node& node) {
  return dynamic_cast<const AccumulateGrad*>(&node) != nullptr;
}

bool IsSplitNode(const Node& node) {
  return dynamic_cast<const SplitNode*>(&node) != nullptr;
}

// Whether its weights' gradients come with its input's, asked for or not.
bool ComputesAllAtOnce(const Node& node) {
  constexpr const char* kNames[] = {"MkldnnRnnLayerBackward",
                                    "CudnnRnnBackward", "MiopenRnnBackward"};
  return absl::c_any_of(kNames, [name = node.name()](const char* each) {
    return absl::StartsWith(name, each);
  });
}

// May it run twice, for some of its edges each time? LibTorch's derivatives do
// what they are asked for; of other functions nothing is known.
bool MaySplit(const Node& node) {
  if (!node.post_hooks().empty()) return false;
  if (IsSplitNode(node)) return true;
  return absl::StartsWith(c10::demangle(typeid(node).name()),
                          "torch::autograd::generated::") &&
         !ComputesAllAtOnce(node);
}

// May it do more than compute: speak with other ranks (SyncBatchNorm), say? Of
// functions that are not LibTorch's nothing is known.
bool IsCustom(const Node& node) {
  const std::string type = c10::demangle(typeid(node).name());
  return !absl::StartsWith(type, "torch::autograd::") ||
         absl::StartsWith(type, "torch::autograd::CppNode<");
}

// Calls `visit` with each node that this one's edges lead to.
template <typename Visit>
void ForEachNext(const Node& node, const Visit& visit) {
  for (const Edge& edge : node.next_edges()) {
    if (edge.is_valid()) visit(edge.function.get());
  }
}

}  // namespace

std::vector<Node*> NodesBehind(const edge_list& edges) {
  struct Visit {
    Node* node;
    size_t next;
  };
  std::vector<Node*> nodes;
  std::unordered_set<const Node*> seen;
  std::vector<Visit> path;
  const auto enter = [&](Node* node) {
    if (node == nullptr || !seen.insert(node).second) return;
    path.push_back({node, 0});
  };
  for (const Edge& root : edges) {
    enter(root.function.get());
    while (!path.empty()) {
      Visit& last = path.back();
      const edge_list& next = last.node->next_edges();
      if (last.next < next.size()) {
        enter(next[last.next++].function.get());
      } else {
        nodes.push_back(last.node);
        path.pop_back();
      }
    }
  }
  return nodes;
}

GraphDivision::GraphDivision(const edge_list& roots,
                             const std::vector<at::Tensor>& inputs)
    : nodes_(NodesBehind(roots)) {
  const bool is_together = absl::c_any_of(
      nodes_, [](const Node* node) { return IsReentrantCheckpoint(*node); });
  if (is_together) {
    early_.insert(nodes_.begin(), nodes_.end());
    return;
  }
  AimAtInputs(inputs);
  if (aims_.empty()) AimAtBranches();
  AimAtSplitNodes();
  do {
    CloseUpwards();
  } while (AimAtUnsplit() || AimAtCustom());
}

void GraphDivision::Aim(Node* node) {
  if (early_.insert(node).second) aims_.emplace_back(node->getptr(), 0);
}

void GraphDivision::AimAtInputs(const std::vector<at::Tensor>& inputs) {
  std::unordered_set<const Node*> accumulators;
  for (const at::Tensor& each : inputs) {
    if (!each.requires_grad()) continue;
    accumulators.insert(
        torch::autograd::impl::try_get_grad_accumulator(each).get());
  }
  for (Node* node : nodes_) {
    if (accumulators.count(node) > 0) Aim(node);
  }
}

// They are to be asked for their weights, whose accumulators hear of it.
void GraphDivision::AimAtSplitNodes() {
  for (const Node* node : nodes_) {
    if (!IsSplitNode(*node)) continue;
    ForEachNext(*node, [this](Node* next) {
      if (IsAccumulator(*next)) Aim(next);
    });
  }
}

void GraphDivision::AimAtBranches() {
  for (Node* node : nodes_) {
    int count = 0;
    ForEachNext(*node, [&count](Node*) { ++count; });
    if (count > 1) Aim(node);
  }
}

// What early nodes that cannot be split lead to is early, too. True: there was
// some.
bool GraphDivision::AimAtUnsplit() {
  const size_t before = aims_.size();
  for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node) {
    if (early_.count(*node) == 0) continue;
    bool has_late = false;
    ForEachNext(**node, [&](Node* next) {
      has_late = has_late || early_.count(next) == 0;
    });
    if (!has_late || MaySplit(**node)) continue;
    ForEachNext(**node, [this](Node* next) { Aim(next); });
  }
  return aims_.size() > before;
}

// Other replicas do their part in the first one, whatever leads where there.
// True: there was some.
bool GraphDivision::AimAtCustom() {
  const size_t before = aims_.size();
  for (Node* node : nodes_) {
    if (early_.count(node) == 0 && IsCustom(*node)) Aim(node);
  }
  return aims_.size() > before;
}

void GraphDivision::CloseUpwards() {
  for (const Node* node : nodes_) {
    ForEachNext(*node, [&](const Node* next) {
      if (early_.count(next) > 0) early_.insert(node);
    });
  }
}

bool GraphDivision::is_early(const Edge& edge) const {
  return early_.count(edge.function.get()) > 0;
}

std::vector<Node*> GraphDivision::Joints() const {
  std::vector<Node*> joints;
  for (Node* node : nodes_) {
    if (early_.count(node) == 0) continue;
    const bool has_late =
        absl::c_any_of(node->next_edges(), [this](const Edge& edge) {
          return edge.is_valid() && !is_early(edge);
        });
    if (has_late) joints.push_back(node);
  }
  return joints;
}

}  // namespace tandem
