#include "parallel/split_backward/graph_split.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <cstddef>
#include <memory>
#include <utility>

#include "parallel/split_backward/graph_division.h"

namespace tandem {
namespace {

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
