// Collective node: mark of an autograd node whose backward issues collectives
// (SyncBatchNorm's sums, tensor parallelism's).

#ifndef TANDEM_CORE_MODEL_COLLECTIVE_NODE_H_
#define TANDEM_CORE_MODEL_COLLECTIVE_NODE_H_

namespace tandem {

// A second base of such a node (torch::autograd::Node), as SplitNode is
// (core/model/weight_gradient_sink.h). Ranks meet in a node's collective where
// all of them run it at the same place of their schedules. So where backward is
// split in two parts (parallel/split_backward), the node runs in the first one,
// whatever it leads to, and once: the second part comes at different moments on
// different ranks, and not at all for a microbatch that a rank lacks.
//
//   class SumBackward : public torch::autograd::Node, public CollectiveNode {
//
// A torch::autograd::Function has no second base; it runs in the first part as
// well, since nothing is known of what it does.
class CollectiveNode {
 public:
  enum class Forward {
    // Issues collectives, too, and again where it is computed again.
    kCommunicates,
    // Issues none when it is computed again: there were none, or what they gave
    // is kept (KeptStatistics).
    kIsLocal,
  };

  // To be made where the forward is computed, on its thread.
  explicit CollectiveNode(Forward forward = Forward::kCommunicates);
  virtual ~CollectiveNode() = default;

  // Whether a checkpoint is around it by which its forward is computed again,
  // collectives included, when anything is asked for that was kept there. Then
  // no part of its graph may run in the second part.
  bool repeats_forward() const { return repeats_forward_; }

 private:
  const bool repeats_forward_;
};

}  // namespace tandem

#endif  // TANDEM_CORE_MODEL_COLLECTIVE_NODE_H_
