// Backward in two parts for any graph: the gradients of inputs first, those of
// weights later (zero bubble, 2401.10241). What torch.distributed.pipelining
// has as stage_backward_input and stage_backward_weight: modules need not know
// of it.

#ifndef TANDEM_PARALLEL_SPLIT_BACKWARD_GRAPH_SPLIT_H_
#define TANDEM_PARALLEL_SPLIT_BACKWARD_GRAPH_SPLIT_H_

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/node.h>

#include <vector>

namespace tandem {

// What the first part has left: of the graph, the nodes that the paths to
// weights begin at, with the gradients that have come to them. All else of the
// graph, and what it has kept, can go.
//
// In the first part runs what leads to `inputs`. Such a node whose edge leads
// to weights alone is stopped at that edge, and runs once more in the second,
// for that edge alone: LibTorch's own operators compute what they are asked
// for. Not split, and so computed in the first part:
//   - nodes that are SplitNodes: they leave their weights to their sink;
//   - weights of custom functions (torch::autograd::Function), which compute
//     all of their gradients at once, of oneDNN's and cuDNN's RNN layers, which
//     do too, and of nodes with post-hooks;
//   - the whole graph, where a re-entrant checkpoint is in it, or a node that
//     speaks with other ranks when a checkpoint has it computed again
//     (CollectiveNode::repeats_forward).
// Any other function under a non-re-entrant checkpoint runs once more in each
// part.
//
// Where no input takes a gradient (a model's first stage) what leads to two
// weights or more runs in the first part, as if there were one.
//
// The second part issues no collective. CollectiveNodes
// (core/model/collective_node.h) and custom functions, which may issue some,
// run in the first one, once, wherever they are: other ranks wait for them
// there.
//
// The sum of both parts is what one backward gives, bit for bit: the same
// operators compute it from the same gradients, and it goes through the
// weights' accumulators once. Hooks on tensors run once.
//
// Used by one thread at a time; throws what LibTorch throws.
class GraphSplit {
 public:
  // Nothing is left.
  GraphSplit() = default;

  // The first part, of the graph behind `roots`, which have these gradients,
  // all defined. Gradients are added to `inputs`, which are leaves of it. The
  // graph can be used for nothing else afterwards.
  static GraphSplit BackwardInputs(
      const std::vector<torch::autograd::Edge>& roots,
      const std::vector<at::Tensor>& gradients,
      const std::vector<at::Tensor>& inputs);

  // The second part: adds the gradients of the weights that are left. After it
  // none are.
  void BackwardWeights();

  // In any order, each once.
  const std::vector<at::Tensor>& weights() const { return weights_; }

 private:
  void Leave(const torch::autograd::Edge& root, const at::Tensor& gradient);

  std::vector<torch::autograd::Edge> roots_;
  std::vector<at::Tensor> gradients_;
  std::vector<at::Tensor> weights_;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_SPLIT_BACKWARD_GRAPH_SPLIT_H_
