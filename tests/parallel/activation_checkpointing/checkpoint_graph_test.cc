// What non-re-entrant checkpointing leaves of autograd: grad() with given
// inputs, graphs that are kept, second derivatives, backward within forward.

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/base/torch_status.h"
#include "core/random/random.h"
#include "core/testing/device_types.h"
#include "core/testing/statuses.h"
#include "parallel/activation_checkpointing/checkpoint.h"

namespace tandem::checkpoint_graph_test {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

class CheckpointGraphTest : public DeviceTypeTest {
 protected:
  static at::Tensor Leaf(const std::string& name, at::IntArrayRef sizes) {
    return at::randn(sizes, GeneratorFor(1, name))
        .to(TestDevice())
        .requires_grad_();
  }
};
TANDEM_ON_DEVICE_TYPES(CheckpointGraphTest);

// A function that counts how often it runs, on any thread.
struct Counted {
  at::Tensor weight;
  std::shared_ptr<std::atomic<int>> calls =
      std::make_shared<std::atomic<int>>(0);
  at::Tensor operator()(const at::Tensor& x) const {
    ++*calls;
    return at::linear(x, weight).tanh().exp();
  }
};

TEST_P(CheckpointGraphTest, GradWithRespectToInputsOrToParametersAlone) {
  const at::Tensor x = Leaf("x", {2, 3}), weight = Leaf("w", {3, 3});
  const Counted layer = {weight};
  const at::Tensor plain = layer(x).sum(), y = Checkpoint(layer, x).sum();
  for (const at::Tensor& leaf : {x, weight}) {
    const auto expected = torch::autograd::grad({plain}, {leaf}, {}, true);
    const auto found = torch::autograd::grad({y}, {leaf}, {}, true);
    EXPECT_TRUE(at::equal(found[0], expected[0]));
  }
  EXPECT_FALSE(x.grad().defined());
  EXPECT_FALSE(weight.grad().defined());
}

TEST_P(CheckpointGraphTest, AKeptGraphIsComputedAgainForEachBackward) {
  const Counted layer = {Leaf("w", {3, 3})};
  const at::Tensor x = Leaf("x", {2, 3});
  const at::Tensor y = Checkpoint(layer, x).sum();
  y.backward({}, /*retain_graph=*/true);
  const at::Tensor once = layer.weight.grad().clone();
  y.backward({}, /*retain_graph=*/true);
  y.backward();
  EXPECT_EQ(*layer.calls, 4);
  EXPECT_TRUE(at::allclose(layer.weight.grad(), once * 3));
  EXPECT_THAT(CatchTorch([&] { y.backward(); }),
              Says("backward through the graph a second time"));
}

TEST_P(CheckpointGraphTest, SecondDerivatives) {
  const auto second = [](bool on) {
    const Counted layer = {Leaf("w", {3, 3})};
    const at::Tensor x = Leaf("x", {2, 3});
    const at::Tensor y = on ? Checkpoint(layer, x) : layer(x);
    const auto first = torch::autograd::grad({y.sum()}, {x, layer.weight}, {},
                                             true, /*create_graph=*/true);
    (first[0].square().sum() + first[1].square().sum()).backward();
    return variable_list{x.grad(), layer.weight.grad()};
  };
  const variable_list found = second(true), expected = second(false);
  for (size_t i : {0, 1}) EXPECT_TRUE(at::equal(found[i], expected[i]));
}

// Energies whose forces are part of a forward.
TEST_P(CheckpointGraphTest, ABackwardWithinTheFunction) {
  const auto forces = [](bool on, bool early_stop) {
    const at::Tensor weight = Leaf("w", {3, 3}), x = Leaf("x", {2, 3});
    const auto function = [weight](const at::Tensor& in) {
      const at::Tensor energy = at::linear(in, weight).tanh().sum();
      return torch::autograd::grad({energy}, {in}, {}, true,
                                   /*create_graph=*/true)[0]
          .sin();
    };
    CheckpointOptions options;
    options.early_stop = early_stop;
    (on ? Checkpoint(options, function, x) : function(x)).sum().backward();
    return weight.grad();
  };
  const at::Tensor expected = forces(false, true);
  EXPECT_TRUE(at::equal(forces(true, true), expected));
  EXPECT_TRUE(at::equal(forces(true, false), expected));
}

// Asks for each tensor twice, as nodes may.
struct Twice : torch::autograd::Function<Twice> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    return x.exp();
  }
  static variable_list backward(AutogradContext* context,
                                const variable_list& gradients) {
    const at::Tensor first = context->get_saved_variables()[0];
    const at::Tensor second = context->get_saved_variables()[0];
    return {gradients[0] * (first + second).mul(0.5).exp()};
  }
};

TEST_P(CheckpointGraphTest, ATensorThatIsAskedForTwiceIsComputedOnce) {
  const at::Tensor x = Leaf("x", {4});
  auto calls = std::make_shared<int>(0);
  const auto function = [calls](const at::Tensor& in) {
    ++*calls;
    return Twice::apply(in.sin());
  };
  Checkpoint(function, x).sum().backward();
  EXPECT_EQ(*calls, 2);
  EXPECT_TRUE(at::allclose(x.grad(), x.cos() * x.sin().exp()));
}

TEST_P(CheckpointGraphTest, EarlyStopLeavesTheEndOut) {
  const at::Tensor x = Leaf("x", {4});
  for (const bool early_stop : {true, false}) {
    auto ends = std::make_shared<int>(0);
    CheckpointOptions options;
    options.early_stop = early_stop;
    Checkpoint(
        options,
        [ends](const at::Tensor& in) {
          const at::Tensor y = in.sin().exp();
          ++*ends;
          return y + 1;
        },
        x)
        .sum()
        .backward();
    EXPECT_EQ(*ends, early_stop ? 1 : 2);
  }
}

TEST_P(CheckpointGraphTest, APartialBackwardAndThenAWholeOne) {
  const Counted layer = {Leaf("w", {3, 3})};
  const at::Tensor x = Leaf("x", {2, 3});
  const at::Tensor middle = Checkpoint(layer, x);
  const at::Tensor y = Checkpoint(layer, middle).sum();
  const auto partial = torch::autograd::grad({y}, {middle}, {}, true);
  y.backward();
  const Counted plain = {layer.weight.detach().clone().requires_grad_()};
  const at::Tensor its_middle = plain(x), its_y = plain(its_middle).sum();
  EXPECT_TRUE(at::equal(
      partial[0], torch::autograd::grad({its_y}, {its_middle}, {}, true)[0]));
  its_y.backward();
  EXPECT_TRUE(at::equal(layer.weight.grad(), plain.weight.grad()));
}

// Backward may run on any thread, several at once.
TEST_P(CheckpointGraphTest, TwoThreadsGoThroughOneGraph) {
  const Counted layer = {Leaf("w", {8, 8})};
  const at::Tensor x = Leaf("x", {4, 8});
  const at::Tensor y = Checkpoint(layer, Checkpoint(layer, x)).sum();
  const auto expected = torch::autograd::grad({y}, {x}, {}, true)[0];
  std::vector<at::Tensor> found(2);
  std::vector<std::thread> threads;
  for (at::Tensor& each : found) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) {
        each = torch::autograd::grad({y}, {x}, {}, true)[0];
      }
    });
  }
  for (std::thread& each : threads) each.join();
  for (const at::Tensor& each : found) EXPECT_TRUE(at::equal(each, expected));
}

TEST_P(CheckpointGraphTest, ReentrantIsForWholeBackwardsAlone) {
  const at::Tensor x = Leaf("x", {3});
  CheckpointOptions options;
  options.use_reentrant = true;
  options.name = "block 7";
  const at::Tensor y = Checkpoint(
      options, [](const at::Tensor& in) { return in.exp(); }, x);
  const absl::Status status =
      CatchTorch([&] { torch::autograd::grad({y.sum()}, {x}); });
  EXPECT_THAT(status, Says("block 7", "use_reentrant"));
}

// Nothing holds what backward has been through.
TEST_P(CheckpointGraphTest, TheGraphGoesWithItsTensors) {
  const at::Tensor x = Leaf("x", {3});
  std::weak_ptr<int> alive;
  {
    auto mark = std::make_shared<int>(0);
    alive = mark;
    const at::Tensor y = Checkpoint(
        [mark](const at::Tensor& in) { return in.sigmoid().exp().sigmoid(); },
        x);
    mark.reset();
    EXPECT_FALSE(alive.expired());
    y.sum().backward({}, /*retain_graph=*/true);
    EXPECT_FALSE(alive.expired());
  }
  EXPECT_TRUE(alive.expired());
}

}  // namespace
}  // namespace tandem::checkpoint_graph_test
