// Nodes that issue collectives, in a backward in two parts.

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/utils.h>

#include "core/model/collective_node.h"
#include "core/model/weight_gradient_sink.h"
#include "parallel/activation_checkpointing/checkpoint.h"
#include "parallel/split_backward/graph_split.h"
#include "tests/parallel/split_backward/split_problem.h"

namespace tandem {
namespace {

using torch::autograd::variable_list;

class CollectiveNodeTest : public testing::Test {
 protected:
  CollectiveNodeTest() { torch::manual_seed(5); }
};

// x times w, element by element, where ranks meet: here they are counted.
struct Meetings {
  int in_forward = 0;
  int in_backward = 0;
};

class MeetingBackward : public torch::autograd::Node, public CollectiveNode {
 public:
  MeetingBackward(const at::Tensor& x, const at::Tensor& w, Forward forward,
                  Meetings* meetings)
      : CollectiveNode(forward),
        x_(x, /*is_output=*/false),
        w_(w, /*is_output=*/false),
        meetings_(meetings) {}

  variable_list apply(variable_list&& gradients) override {
    ++meetings_->in_backward;
    return {gradients[0] * w_.unpack(getptr()),
            gradients[0] * x_.unpack(getptr())};
  }
  void release_variables() override {
    x_.reset_data();
    w_.reset_data();
  }

 private:
  torch::autograd::SavedVariable x_, w_;
  Meetings* const meetings_;
};

class SplitMeetingBackward : public MeetingBackward, public SplitNode {
  using MeetingBackward::MeetingBackward;
};

template <typename Backward>
at::Tensor Meet(
    const at::Tensor& x, const at::Tensor& w, Meetings* meetings,
    CollectiveNode::Forward forward = CollectiveNode::Forward::kCommunicates) {
  ++meetings->in_forward;
  const auto node = c10::make_intrusive<Backward>(x, w, forward, meetings);
  node->set_next_edges(torch::autograd::collect_next_edges(x, w));
  at::Tensor y;
  {
    const at::NoGradGuard no_grad;
    y = x * w;
  }
  torch::autograd::set_history(y, node);
  return y;
}

// Behind it there is nothing but weights, of which one waits.
TEST_F(CollectiveNodeTest, CollectiveNodesRunInTheFirstPartWhateverTheyLeadTo) {
  const at::Tensor w = at::randn({4, 6}).requires_grad_();
  const at::Tensor u = at::randn({4, 6}).requires_grad_();
  const at::Tensor v = at::randn({6, 6}).requires_grad_();
  Meetings meetings;
  Problem problem = {{w, u, v}, at::randn({4, 6}), nullptr};
  problem.run = [&](const at::Tensor& x) {
    return at::linear(x, v) + Meet<MeetingBackward>(w * 2, u, &meetings);
  };
  ExpectSplit(problem, 2);
  meetings = Meetings();
  GraphSplit split = FirstPart(problem, problem.input.clone().requires_grad_());
  EXPECT_EQ(meetings.in_backward, 1);
  split.BackwardWeights();
  EXPECT_EQ(meetings.in_backward, 1);
}

// Not even one that leaves its weights to a sink runs again for a weight that
// is computed from others.
TEST_F(CollectiveNodeTest, CollectiveNodesRunOnce) {
  const at::Tensor w = at::randn({4, 6}).requires_grad_();
  const at::Tensor v = at::randn({6, 6}).requires_grad_();
  Meetings meetings;
  Problem problem = {{w, v}, at::randn({4, 6}), nullptr};
  problem.run = [&](const at::Tensor& x) {
    return Meet<SplitMeetingBackward>(at::linear(x, v), w * 2, &meetings);
  };
  ExpectSplit(problem, 2);
  meetings = Meetings();
  GraphSplit split = FirstPart(problem, problem.input.clone().requires_grad_());
  EXPECT_EQ(meetings.in_backward, 1);
  split.BackwardWeights();
  EXPECT_EQ(meetings.in_backward, 1);
  EXPECT_EQ(meetings.in_forward, 1);
}

// A checkpoint would have ranks meet in the second part, too, where their
// forward communicates.
TEST_F(CollectiveNodeTest, ForwardsAreComputedAgainInTheFirstPartAlone) {
  const at::Tensor w = at::randn({4, 6}).requires_grad_();
  const at::Tensor v = at::randn({6, 6}).requires_grad_();
  const at::Tensor last = at::randn({6, 6}).requires_grad_();
  Meetings meetings;
  Problem problem = {{w, v, last}, at::randn({4, 6}), nullptr};
  const auto checkpointed = [&](CollectiveNode::Forward forward) {
    problem.run = [&, forward](const at::Tensor& x) {
      const auto block = [&, forward](const at::Tensor& h) {
        return Meet<MeetingBackward>(at::linear(h, v).tanh(), w, &meetings,
                                     forward);
      };
      return at::linear(Checkpoint(block, x), last);
    };
  };
  const auto first_part = [&] {
    meetings = Meetings();
    return FirstPart(problem, problem.input.clone().requires_grad_());
  };
  checkpointed(CollectiveNode::Forward::kCommunicates);
  ExpectSplit(problem, 0);
  GraphSplit split = first_part();
  EXPECT_EQ(meetings.in_forward, 2);
  EXPECT_EQ(meetings.in_backward, 1);
  split.BackwardWeights();
  EXPECT_EQ(meetings.in_forward, 2);
  TakeGradients(problem.weights);
  // One that keeps what ranks have told each other may be computed once more.
  checkpointed(CollectiveNode::Forward::kIsLocal);
  ExpectSplit(problem, 2);
  split = first_part();
  EXPECT_EQ(meetings.in_forward, 2);
  split.BackwardWeights();
  EXPECT_EQ(meetings.in_forward, 3);
  EXPECT_EQ(meetings.in_backward, 1);
}

}  // namespace
}  // namespace tandem
