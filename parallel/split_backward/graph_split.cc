#include "parallel/split_backward/graph_split.h"

#include <ATen/core/Tensor.h>
#include <c10/util/Type.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <cstddef>
#include <memory>
#include <string>
#include <typeinfo>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "core/model/collective_node.h"
#include "core/model/weight_gradient_sink.h"
#include "parallel/activation_checkpointing/reentrant_checkpoint.h"

namespace tandem {
namespace {

// The nodes that edges lead to, each behind all that it leads to itself.
std::vector<torch::autograd::Node*> NodesBehind(
    const std::vector<torch::autograd::Edge>& edges);

// Divides the graph behind `roots`, which must live longer. Early nodes run in
// the first part. A late one is LibTorch's, and leads to weights alone, and to
// no early one. So it issues no collective, and none that runs in both parts
// does.
class GraphDivision {
 public:
  GraphDivision(const std::vector<torch::autograd::Edge>& roots,
                const std::vector<at::Tensor>& inputs);

  // Nothing runs late.
  bool is_whole() const { return early_.size() == nodes_.size(); }
  bool is_early(const torch::autograd::Edge& edge) const;
  // What the first part is for: inputs' accumulators, and all else that is
  // needed early.
  const std::vector<torch::autograd::Edge>& aims() const { return aims_; }
  // Early nodes that have an edge to a late one.
  std::vector<torch::autograd::Node*> Joints() const;

 private:
  void Aim(torch::autograd::Node* node);
  void AimAtInputs(const std::vector<at::Tensor>& inputs);
  void AimAtSplitNodes();
  void AimAtBranches();
  bool AimAtUnsplit();
  bool AimAtCustom();
  void CloseUpwards();

  std::vector<torch::autograd::Node*> nodes_;
  std::unordered_set<const torch::autograd::Node*> early_;
  std::vector<torch::autograd::Edge> aims_;
};

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

bool IsCollective(const Node& node) {
  return dynamic_cast<const CollectiveNode*>(&node) != nullptr;
}

bool RepeatsCollectives(const Node& node) {
  const auto* const collective = dynamic_cast<const CollectiveNode*>(&node);
  return collective != nullptr && collective->repeats_forward();
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
  if (!node.post_hooks().empty() || IsCollective(node)) return false;
  if (IsSplitNode(node)) return true;
  return absl::StartsWith(c10::demangle(typeid(node).name()),
                          "torch::autograd::generated::") &&
         !ComputesAllAtOnce(node);
}

// May it do more than compute: speak with other ranks, say? Of functions that
// are not LibTorch's nothing is known, unless they are marked.
bool IsCustom(const Node& node) {
  if (IsCollective(node)) return true;
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
  const bool is_together = absl::c_any_of(nodes_, [](const Node* node) {
    return IsReentrantCheckpoint(*node) || RepeatsCollectives(*node);
  });
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

using torch::autograd::AccumulateGrad;
using torch::autograd::Edge;
using torch::autograd::edge_list;
using torch::autograd::Node;
using torch::autograd::variable_list;

void Execute(const edge_list& roots, const variable_list& gradients,
             bool keep_graph, const edge_list& aims = {}) {
  torch::autograd::Engine::get_default_engine().execute(
      roots, gradients, keep_graph, /*create_graph=*/false,
      /*accumulate_grad=*/true, aims);
}

// Notes the gradients that come to a node, as the hooks before it leave them.
class Capture : public torch::autograd::FunctionPreHook {
 public:
  explicit Capture(std::shared_ptr<variable_list> into)
      : into_(std::move(into)) {}
  variable_list operator()(const variable_list& gradients) override {
    *into_ = gradients;
    return gradients;
  }

 private:
  const std::shared_ptr<variable_list> into_;
};

// A node that runs in both parts.
class Joint {
 public:
  explicit Joint(Node* node)
      : node_(node->getptr()), gradients_(std::make_shared<variable_list>()) {
    node->add_pre_hook(std::make_unique<Capture>(gradients_));
  }

  // From here on it leads to late nodes alone, and what its hooks had to do
  // they have done.
  void Cut(const GraphDivision& division) {
    for (Edge& edge : node_->next_edges()) {
      if (edge.is_valid() && division.is_early(edge)) edge = Edge();
    }
    node_->tensor_pre_hooks().clear();
    node_->pre_hooks().clear();
    node_->retains_grad_hooks().clear();
  }

  const c10::intrusive_ptr<Node>& node() const { return node_; }
  const variable_list& gradients() const { return *gradients_; }

 private:
  const c10::intrusive_ptr<Node> node_;
  const std::shared_ptr<variable_list> gradients_;
};

std::vector<at::Tensor> WeightsBehind(const edge_list& roots) {
  std::vector<at::Tensor> weights;
  for (const Node* node : NodesBehind(roots)) {
    const auto* of_weight = dynamic_cast<const AccumulateGrad*>(node);
    if (of_weight != nullptr) weights.push_back(of_weight->variable);
  }
  return weights;
}

}  // namespace

void GraphSplit::Leave(const Edge& root, const at::Tensor& gradient) {
  roots_.push_back(root);
  gradients_.push_back(gradient);
}

GraphSplit GraphSplit::BackwardInputs(const edge_list& roots,
                                      const variable_list& gradients,
                                      const std::vector<at::Tensor>& inputs) {
  GraphSplit left;
  if (roots.empty()) return left;
  const GraphDivision division(roots, inputs);
  if (division.is_whole()) {
    Execute(roots, gradients, /*keep_graph=*/false);
    return left;
  }
  edge_list first;
  variable_list first_gradients;
  for (size_t i = 0; i < roots.size(); ++i) {
    if (division.is_early(roots[i])) {
      first.push_back(roots[i]);
      first_gradients.push_back(gradients[i]);
    } else {
      left.Leave(roots[i], gradients[i]);
    }
  }
  std::vector<Joint> joints;
  for (Node* node : division.Joints()) joints.emplace_back(node);
  if (!first.empty()) {
    Execute(first, first_gradients, /*keep_graph=*/true, division.aims());
  }
  for (Joint& joint : joints) joint.Cut(division);
  for (const Joint& joint : joints) {
    for (size_t i = 0; i < joint.gradients().size(); ++i) {
      const at::Tensor& gradient = joint.gradients()[i];
      if (gradient.defined()) left.Leave(Edge(joint.node(), i), gradient);
    }
  }
  left.weights_ = WeightsBehind(left.roots_);
  return left;
}

void GraphSplit::BackwardWeights() {
  const edge_list roots = std::exchange(roots_, {});
  const variable_list gradients = std::exchange(gradients_, {});
  weights_.clear();
  if (!roots.empty()) Execute(roots, gradients, /*keep_graph=*/false);
}

}  // namespace tandem
