// Graph division: which nodes of an autograd graph run in which part of a
// backward that is done in two (graph_split.h).

#ifndef TANDEM_PARALLEL_SPLIT_BACKWARD_GRAPH_DIVISION_H_
#define TANDEM_PARALLEL_SPLIT_BACKWARD_GRAPH_DIVISION_H_

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

#include <unordered_set>
#include <vector>

namespace tandem {

// The nodes that edges lead to, each behind all that it leads to itself.
std::vector<torch::autograd::Node*> NodesBehind(
    const std::vector<torch::autograd::Edge>& edges);

// Divides the graph behind `roots`, which must live longer. Early nodes run in
// the first part. A late one is LibTorch's, and leads to weights alone, and to
// no early one.
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

}  // namespace tandem

#endif  // TANDEM_PARALLEL_SPLIT_BACKWARD_GRAPH_DIVISION_H_
