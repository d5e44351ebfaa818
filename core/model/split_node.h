// Split node: mark of an autograd node that leaves gradients of its weights to
// a sink (core/model/weight_gradient_sink.h).

#ifndef TANDEM_CORE_MODEL_SPLIT_NODE_H_
#define TANDEM_CORE_MODEL_SPLIT_NODE_H_

namespace tandem {

// A second base of such a node, so that who splits whatever other graphs
// (parallel/split_backward) lets it see to its weights itself.
class SplitNode {
 public:
  virtual ~SplitNode() = default;
};

}  // namespace tandem

#endif  // TANDEM_CORE_MODEL_SPLIT_NODE_H_
