#include "parallel/split_backward/graph_split.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/modules/transformerlayer.h>
#include <torch/utils.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "core/model/weight_gradient_sink.h"
#include "models/functions/linear_function.h"
#include "parallel/activation_checkpointing/checkpoint.h"
#include "tests/parallel/split_backward/split_problem.h"

namespace tandem {
namespace {

namespace nn = torch::nn;
using torch::autograd::variable_list;

Problem Of(const std::shared_ptr<nn::Module>& module, at::Tensor input,
           std::function<at::Tensor(const at::Tensor&)> run) {
  return {module->parameters(), std::move(input), std::move(run)};
}

class GraphSplitTest : public testing::Test {
 protected:
  GraphSplitTest() { torch::manual_seed(5); }
};

TEST_F(GraphSplitTest, LinearLayers) {
  nn::Sequential net(nn::Linear(7, 5), nn::Tanh(), nn::Linear(5, 3), nn::GELU(),
                     nn::Linear(3, 2));
  const auto run = [=](const at::Tensor& x) mutable { return net->forward(x); };
  ExpectSplit(Of(net.ptr(), at::randn({4, 7}), run), 6);
}

TEST_F(GraphSplitTest, ConvolutionsAndNorms) {
  nn::Sequential net(nn::Conv2d(nn::Conv2dOptions(3, 5, 3).padding(1)),
                     nn::BatchNorm2d(5), nn::ReLU(),
                     nn::Conv2d(nn::Conv2dOptions(5, 2, 3).stride(2)),
                     nn::GroupNorm(1, 2));
  const auto run = [=](const at::Tensor& x) mutable { return net->forward(x); };
  ExpectSplit(Of(net.ptr(), at::randn({3, 3, 7, 9}), run), 8);
}

TEST_F(GraphSplitTest, ATransformerLayer) {
  nn::TransformerEncoderLayer layer(
      nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(12).dropout(0));
  const auto run = [=](const at::Tensor& x) mutable {
    return layer->forward(x);
  };
  ExpectSplit(Of(layer.ptr(), at::randn({5, 3, 8}), run), 12);
}

TEST_F(GraphSplitTest, ADecoderLayerWithMemory) {
  nn::TransformerDecoderLayer layer(
      nn::TransformerDecoderLayerOptions(8, 2).dim_feedforward(12).dropout(0));
  const auto run = [=](const at::Tensor& x) mutable {
    return layer->forward(x, x * 2);
  };
  ExpectSplit(Of(layer.ptr(), at::randn({5, 3, 8}), run), 18);
}

// A cell is made of products; oneDNN's whole layers compute all at once.
TEST_F(GraphSplitTest, RecurrentCells) {
  nn::LSTMCell cell(6, 4);
  const auto run = [=](const at::Tensor& x) mutable {
    std::tuple<at::Tensor, at::Tensor> state = cell->forward(x);
    for (int i = 0; i < 3; ++i) state = cell->forward(x * (i + 2), state);
    return std::get<0>(state) + std::get<1>(state);
  };
  ExpectSplit(Of(cell.ptr(), at::randn({3, 6}), run), 4);
}

TEST_F(GraphSplitTest, WhatGivesBothAtOnceIsNotSplit) {
  nn::LSTM lstm(6, 4);
  nn::Linear behind(4, 2);
  Problem problem;
  problem.weights = lstm->parameters();
  for (const auto& each : behind->parameters()) problem.weights.push_back(each);
  problem.input = at::randn({5, 3, 6});
  problem.run = [=](const at::Tensor& x) mutable {
    return behind->forward(std::get<0>(lstm->forward(x)));
  };
  const at::Tensor input = problem.input.clone().requires_grad_();
  const GraphSplit split = FirstPart(problem, input);
  const size_t left = split.weights().size();
  EXPECT_GE(left, 2u);
  TakeGradients(problem.weights);
  ExpectSplit(problem, left);
}

// One weight at both ends, and one that two layers share within a product.
TEST_F(GraphSplitTest, SharedWeights) {
  const at::Tensor w = at::randn({6, 6}).requires_grad_();
  const at::Tensor g = at::rand({6}).requires_grad_();
  Problem problem = {{w, g}, at::randn({4, 6}), nullptr};
  problem.run = [=](const at::Tensor& x) {
    const at::Tensor scaled = w * g;
    const at::Tensor h = at::linear(at::linear(x, scaled).tanh(), scaled);
    return at::linear((h + x * g).tanh(), w.t());
  };
  ExpectSplit(problem, 2);
}

TEST_F(GraphSplitTest, WithoutAnInputsGradientWeightsAreLeftAllTheSame) {
  nn::Sequential net(nn::Embedding(11, 6),
                     nn::LayerNorm(nn::LayerNormOptions({6})), nn::Linear(6, 4),
                     nn::ReLU(), nn::Linear(4, 3));
  const auto run = [=](const at::Tensor& x) mutable { return net->forward(x); };
  ExpectSplit(Of(net.ptr(), at::arange(8) % 11, run), 7);
}

// A part under no_grad, a weight that takes none, and one that is not used.
TEST_F(GraphSplitTest, PartsWithoutGradient) {
  const at::Tensor w = at::randn({6, 6}).requires_grad_();
  const at::Tensor frozen = at::randn({6, 6});
  const at::Tensor unused = at::randn({6}).requires_grad_();
  Problem problem = {{w}, at::randn({4, 6}), nullptr};
  problem.run = [=](const at::Tensor& x) {
    at::Tensor constant;
    {
      const at::NoGradGuard no_grad;
      constant = at::linear(x, w) + unused;
    }
    return at::linear(at::linear(x, frozen) * constant, w);
  };
  ExpectSplit(problem, 1);
  EXPECT_FALSE(unused.grad().defined());
}

// An output of weights alone waits as a whole.
TEST_F(GraphSplitTest, ARootOfWeightsAlone) {
  const at::Tensor w = at::randn({3, 3}).requires_grad_();
  const at::Tensor input = at::randn({2, 3}).requires_grad_();
  const at::Tensor y = at::linear(input, w), penalty = w.square().sum();
  GraphSplit split = GraphSplit::BackwardInputs(
      {torch::autograd::impl::gradient_edge(y),
       torch::autograd::impl::gradient_edge(penalty)},
      {at::ones_like(y), at::ones_like(penalty)}, {input});
  EXPECT_FALSE(w.grad().defined());
  ASSERT_EQ(split.weights().size(), 1u);
  split.BackwardWeights();
  EXPECT_TRUE(
      w.grad().allclose(input.detach().sum(0).expand({3, 3}) + 2 * w.detach()));
}

TEST_F(GraphSplitTest, HooksOnTensorsRunOnce) {
  const at::Tensor w = at::randn({6, 6}).requires_grad_();
  Problem problem = {{w}, at::randn({4, 6}), nullptr};
  problem.run = [=](const at::Tensor& x) {
    const at::Tensor h = at::linear(x, w);
    h.register_hook([](const at::Tensor& gradient) { return gradient * 3; });
    return at::linear(h.tanh(), w);
  };
  ExpectSplit(problem, 1);
}

struct Twice : torch::autograd::Function<Twice> {
  static at::Tensor forward(torch::autograd::AutogradContext* context,
                            const at::Tensor& x, const at::Tensor& w) {
    context->save_for_backward({x, w});
    return x * w * 2;
  }
  static variable_list backward(torch::autograd::AutogradContext* context,
                                const variable_list& gradients) {
    ++*Calls();
    const variable_list saved = context->get_saved_variables();
    return {gradients[0] * saved[1] * 2, gradients[0] * saved[0] * 2};
  }
  static int* Calls() {
    static int calls = 0;
    return &calls;
  }
};

// Also behind an operator that others wait for.
TEST_F(GraphSplitTest, CustomFunctionsRunOnce) {
  const at::Tensor w = at::randn({4, 6}).requires_grad_();
  const at::Tensor v = at::randn({6, 6}).requires_grad_();
  Problem problem = {{w, v}, at::randn({4, 6}), nullptr};
  problem.run = [=](const at::Tensor& x) {
    return Twice::apply(at::linear(x, v), w);
  };
  ExpectSplit(problem, 1);
  *Twice::Calls() = 0;
  FirstPart(problem, problem.input.clone().requires_grad_()).BackwardWeights();
  EXPECT_EQ(*Twice::Calls(), 1);
  // In the first part, though there is nothing but a weight behind.
  problem.run = [=](const at::Tensor& x) {
    return Twice::apply(at::linear(x, v), x);
  };
  GraphSplit split = FirstPart(problem, problem.input);
  EXPECT_EQ(*Twice::Calls(), 2);
  EXPECT_EQ(split.weights().size(), 1u);
  split.BackwardWeights();
  EXPECT_EQ(*Twice::Calls(), 2);
}

TEST_F(GraphSplitTest, WhatHasASinkKeepsIt) {
  const at::Tensor w = at::randn({6, 6}).requires_grad_();
  const at::Tensor v = at::randn({6, 6}).requires_grad_();
  const auto sink = std::make_shared<WeightGradientSink>();
  Problem problem = {{w, v}, at::randn({4, 6}), nullptr};
  problem.run = [=](const at::Tensor& x) {
    const WeightGradientSink::Scope scope(sink);
    return at::linear(LinearFunction(x, w, {}, WeightLayout::kOutIn).tanh(), v);
  };
  GraphSplit split = FirstPart(problem, problem.input.clone().requires_grad_());
  ASSERT_EQ(split.weights().size(), 1u);
  EXPECT_TRUE(split.weights()[0].is_same(v));
  ASSERT_EQ(sink->size(), 1u);
  EXPECT_FALSE(w.grad().defined() || v.grad().defined());
  split.BackwardWeights();
  EXPECT_TRUE(v.grad().defined());
  ASSERT_TRUE(sink->Flush().ok());
  const std::vector<at::Tensor> found = TakeGradients(problem.weights);
  problem.run = [=](const at::Tensor& x) {
    return at::linear(LinearFunction(x, w, {}, WeightLayout::kOutIn).tanh(), v);
  };
  Backward(problem, problem.input.clone().requires_grad_());
  EXPECT_TRUE(found[0].equal(w.grad()));
  EXPECT_TRUE(found[1].equal(v.grad()));
}

TEST_F(GraphSplitTest, CheckpointedFunctions) {
  nn::Linear inner(6, 6), outer(6, 3);
  for (const bool reentrant : {false, true}) {
    Problem problem;
    problem.weights = inner->parameters();
    for (const auto& each : outer->parameters())
      problem.weights.push_back(each);
    problem.input = at::randn({4, 6});
    problem.run = [=](const at::Tensor& x) mutable {
      CheckpointOptions options;
      options.use_reentrant = reentrant;
      const auto block = [=](const at::Tensor& h) mutable {
        return inner->forward(h).tanh();
      };
      return outer->forward(Checkpoint(options, block, x));
    };
    ExpectSplit(problem, reentrant ? 0 : 4);
  }
}

// Which outputs each node of this name was asked for, by counting its products.
struct Asked : torch::autograd::FunctionPostHook {
  explicit Asked(std::vector<bool>* defined) : defined(defined) {}
  variable_list operator()(const variable_list& outputs,
                           const variable_list&) override {
    for (const at::Tensor& each : outputs) defined->push_back(each.defined());
    return outputs;
  }
  std::vector<bool>* defined;
};

// What keeps a node whole: it shows that the first part of others is no whole
// backward.
TEST_F(GraphSplitTest, NodesWithPostHooksAreNotSplit) {
  const at::Tensor w = at::randn({6, 6}).requires_grad_();
  Problem problem = {{w}, at::randn({4, 6}), nullptr};
  std::vector<bool> defined;
  problem.run = [&](const at::Tensor& x) {
    const at::Tensor y = x.mm(w);
    y.grad_fn()->add_post_hook(std::make_unique<Asked>(&defined));
    return y;
  };
  ExpectSplit(problem, 0);
  EXPECT_EQ(defined, std::vector<bool>(4, true));
}

// The accumulator and its hooks run once, in the second part.
TEST_F(GraphSplitTest, AccumulatorsRunOnceInTheSecondPart) {
  const at::Tensor w = at::randn({6, 6}).requires_grad_();
  const auto accumulator = torch::autograd::impl::grad_accumulator(w);
  std::vector<bool> runs;
  accumulator->add_post_hook(std::make_unique<Asked>(&runs));
  int calls = 0;
  w.register_hook([&](const at::Tensor&) { ++calls; });
  Problem problem = {{w}, at::randn({4, 6}), nullptr};
  problem.run = [=](const at::Tensor& x) { return x.mm(w).tanh().mm(w).mm(w); };
  GraphSplit split = FirstPart(problem, problem.input.clone().requires_grad_());
  EXPECT_EQ(calls, 0);
  split.BackwardWeights();
  EXPECT_EQ(calls, 1);
}

// What the second part does not need goes with the first.
TEST_F(GraphSplitTest, ActivationsGoWithTheFirstPart) {
  const at::Tensor w = at::randn({6, 6}).requires_grad_();
  c10::weak_intrusive_ptr<c10::TensorImpl> activation(
      at::empty({0}).getIntrusivePtr());
  Problem problem = {{w}, at::randn({4, 6}), nullptr};
  problem.run = [&](const at::Tensor& x) {
    const at::Tensor h = x.mm(w).exp();  // kept for exp's backward alone
    activation = c10::weak_intrusive_ptr<c10::TensorImpl>(h.getIntrusivePtr());
    return h.tanh();
  };
  GraphSplit split = FirstPart(problem, problem.input.clone().requires_grad_());
  ASSERT_EQ(split.weights().size(), 1u);
  EXPECT_TRUE(activation.expired());
}

}  // namespace
}  // namespace tandem
