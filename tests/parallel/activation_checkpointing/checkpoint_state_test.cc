// What a checkpointed function depends on beside its arguments is in backward
// as it was in the first pass, and what it changes changes once.

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/rrelu.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/context/compute_context.h"
#include "core/loss/loss_terms.h"
#include "core/model/weight_gradient_sink.h"
#include "core/random/random.h"
#include "core/testing/device_types.h"
#include "models/functions/linear_function.h"
#include "models/layers/batch_norm_2d.h"
#include "models/layers/dropout.h"
#include "parallel/activation_checkpointing/checkpoint.h"

namespace tandem::checkpoint_state_test {
namespace {

at::Tensor Leaf(const std::string& name, at::IntArrayRef sizes) {
  return at::randn(sizes, GeneratorFor(1, name))
      .to(TestDevice())
      .requires_grad_();
}

// The value: use_reentrant.
class CheckpointStateTest : public DeviceTypesAnd<bool> {
 protected:
  static void Seed(uint64_t seed) {
    at::Generator generator =
        at::globalContext().defaultGenerator(TestDevice());
    generator.set_current_seed(seed);
  }
  static CheckpointOptions Options() {
    CheckpointOptions options;
    options.use_reentrant = value();
    return options;
  }
};
TANDEM_ON_DEVICE_TYPES_AND(CheckpointStateTest, testing::Bool());

// A mask that is drawn anew would let through other gradients.
TEST_P(CheckpointStateTest, MasksAreDrawnAgainAsTheyWere) {
  const at::Tensor x = Leaf("x", {64});
  const auto drop = [](const at::Tensor& in) {
    const at::Tensor noise = at::rand({64}, in.options());
    return at::dropout(in.exp(), 0.5, /*train=*/true) * noise.detach();
  };
  for (int round = 0; round < 3; ++round) {
    x.mutable_grad().reset();
    at::Tensor y = Checkpoint(Options(), drop, x);
    y = y + Checkpoint(Options(), drop, x) * 0;
    at::rand({5}, TestDevice());  // moves the generator
    y.sum().backward();
    EXPECT_TRUE(at::allclose(x.grad(), y.detach())) << round;
    EXPECT_GT(y.eq(0).sum().item<int64_t>(), 10);
  }
}

// rrelu keeps its noise first and draws it then; nothing is kept after it.
TEST_P(CheckpointStateTest, NoiseThatIsKeptBeforeItIsDrawn) {
  const auto gradient = [](bool on) {
    Seed(4);
    const auto noisy = [](const at::Tensor& in) {
      return at::rrelu(in.sin(), 0.1, 0.9, /*training=*/true);
    };
    const at::Tensor x = Leaf("x", {64});
    (on ? Checkpoint(Options(), noisy, x) : noisy(x)).sum().backward();
    return x.grad();
  };
  EXPECT_TRUE(at::equal(gradient(true), gradient(false)));
}

TEST_P(CheckpointStateTest, DrawsInCheckpointsWithinCheckpoints) {
  const auto noisy = [](const at::Tensor& in) {
    return in.exp() * at::rand({16}, in.options());
  };
  const auto gradient = [noisy](bool on) {
    Seed(4);
    const CheckpointOptions options = Options();
    const auto outer = [on, options, noisy](const at::Tensor& in) {
      const at::Tensor before = noisy(in).sin();
      return noisy(on ? Checkpoint(options, noisy, before) : noisy(before));
    };
    const at::Tensor x = Leaf("x", {16});
    const at::Tensor y = on ? Checkpoint(options, outer, x) : outer(x);
    at::rand({7}, TestDevice());
    y.sum().backward();
    return x.grad();
  };
  EXPECT_TRUE(at::equal(gradient(true), gradient(false)));
}

// Backward moves nobody's generator, and forward moves it as without
// checkpointing.
TEST_P(CheckpointStateTest, GeneratorsOfOthersAreLeftAlone) {
  const at::Tensor x = Leaf("x", {16});
  const auto drop = [](const at::Tensor& in) {
    return in.exp() * at::rand({16}, in.options());
  };
  const auto draws = [&](bool on) {
    Seed(4);
    const at::Tensor y = on ? Checkpoint(Options(), drop, x) : drop(x);
    const at::Tensor behind = at::rand({3}, TestDevice());
    y.sum().backward();
    return std::vector<at::Tensor>{y.detach(), behind,
                                   at::rand({3}, TestDevice())};
  };
  const auto found = draws(true), expected = draws(false);
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_TRUE(at::equal(found[i], expected[i])) << i;
  }
}

TEST_P(CheckpointStateTest, RngStateMayBeLeftAsItIs) {
  const at::Tensor x = Leaf("x", {64});
  CheckpointOptions options = Options();
  options.preserve_rng_state = false;
  const at::Tensor y = Checkpoint(
      options,
      [](const at::Tensor& in) {
        return in.exp() * at::rand({64}, in.options()).detach();
      },
      x);
  y.sum().backward();
  EXPECT_FALSE(at::allclose(x.grad(), y.detach()));
}

TEST_P(CheckpointStateTest, MasksBySampleAreTheSame) {
  const at::Tensor x = Leaf("x", {4, 16});
  Dropout dropout("drop", 0.5);
  at::Tensor y;
  {
    const SampleScope samples({7, 3, 12});
    y = Checkpoint(
        Options(),
        [&dropout](const at::Tensor& in) { return dropout.forward(in.exp()); },
        x);
  }
  y.sum().backward();
  EXPECT_TRUE(at::allclose(x.grad(), y.detach()));
}

class AutocastOn {
 public:
  explicit AutocastOn(c10::DeviceType type) : type_(type) {
    at::autocast::set_autocast_enabled(type_, true);
    at::autocast::set_autocast_dtype(type_, at::kBFloat16);
    at::autocast::increment_nesting();
  }
  ~AutocastOn() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(type_, false);
  }

 private:
  const c10::DeviceType type_;
};

TEST_P(CheckpointStateTest, AutocastIsAsInTheFirstPass) {
  const c10::DeviceType type = TestDevice().type();
  std::vector<c10::ScalarType> dtypes;
  const auto gradients = [&](bool on) {
    const at::Tensor x = Leaf("x", {4, 6}), weight = Leaf("w", {6, 6});
    const at::Tensor behind = Leaf("v", {6, 6});
    const auto layer = [weight, &dtypes](const at::Tensor& in) {
      const at::Tensor y = at::linear(in, weight);
      dtypes.push_back(y.scalar_type());
      return y.tanh();
    };
    at::Tensor y;
    {
      const AutocastOn autocast(type);
      y = at::linear(on ? Checkpoint(Options(), layer, x) : layer(x), behind);
    }
    y.to(at::kFloat).sum().backward();
    EXPECT_FALSE(at::autocast::is_autocast_enabled(type));
    return std::vector<at::Tensor>{x.grad(), weight.grad()};
  };
  const auto found = gradients(true);
  EXPECT_EQ(dtypes, (std::vector<c10::ScalarType>(2, at::kBFloat16)));
  const auto expected = gradients(false);
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_TRUE(at::equal(found[i], expected[i])) << i;
  }
}

// And off where it was off, though backward is within.
TEST_P(CheckpointStateTest, AutocastAroundBackwardIsNotSeen) {
  const at::Tensor x = Leaf("x", {4, 6}), weight = Leaf("w", {6, 6});
  c10::ScalarType dtype = at::kFloat;
  const at::Tensor y = Checkpoint(
      Options(),
      [weight, &dtype](const at::Tensor& in) {
        const at::Tensor out = at::linear(in, weight);
        dtype = out.scalar_type();
        return out.tanh();
      },
      x);
  {
    const AutocastOn autocast(TestDevice().type());
    y.sum().backward();
    EXPECT_TRUE(at::autocast::is_autocast_enabled(TestDevice().type()));
  }
  EXPECT_EQ(dtype, at::kFloat);
}

at::Tensor Images() {
  return at::randn({3, 2, 4, 4}, GeneratorFor(2, "images")).to(TestDevice());
}

// Running statistics of LibTorch's own module, and of one that knows of
// microbatches.
template <typename Norm>
void ExpectStatisticsOnce(const CheckpointOptions& options) {
  const auto checkpointed = std::make_shared<Norm>(2);
  const auto plain = std::make_shared<Norm>(2);
  for (const auto& each : {checkpointed, plain}) each->to(TestDevice());
  for (int step = 0; step < 2; ++step) {
    const at::Tensor x = Images().requires_grad_();
    const at::Tensor other = Images().requires_grad_();
    Checkpoint(options, checkpointed, x).sin().sum().backward();
    plain->forward(other).sin().sum().backward();
    EXPECT_TRUE(at::equal(x.grad(), other.grad()));
  }
  const auto found = checkpointed->named_buffers();
  ASSERT_EQ(found.size(), 3u);
  for (const auto& buffer : plain->named_buffers()) {
    EXPECT_TRUE(at::equal(found[buffer.key()], buffer.value())) << buffer.key();
  }
  EXPECT_TRUE(at::equal(checkpointed->weight.grad(), plain->weight.grad()));
}

TEST_P(CheckpointStateTest, RunningStatisticsTakeInABatchOnce) {
  ExpectStatisticsOnce<torch::nn::BatchNorm2dImpl>(Options());
  ExpectStatisticsOnce<BatchNorm2d>(Options());
}

// In a lambda nobody sees the module, but one that asks is told.
TEST_P(CheckpointStateTest, AModuleThatAsksKnowsThatItRunsAgain) {
  BatchNorm2d norm(2);
  norm.to(TestDevice());
  const at::Tensor x = Images().requires_grad_();
  Checkpoint(
      Options(), [&norm](const at::Tensor& in) { return norm.forward(in); }, x)
      .sin()
      .sum()
      .backward();
  EXPECT_EQ(norm.num_batches_tracked.item<int64_t>(), 1);
}

TEST_P(CheckpointStateTest, AContextIsThereWhileTheFunctionRunsAgain) {
  const at::Tensor x = Leaf("x", {3});
  std::vector<bool> inside;
  bool is_there = false;
  CheckpointOptions options = Options();
  options.recompute_context = [&is_there] {
    is_there = true;
    return std::shared_ptr<void>(nullptr,
                                 [&is_there](void*) { is_there = false; });
  };
  Checkpoint(
      options,
      [&](const at::Tensor& in) {
        inside.push_back(is_there);
        return in.exp();
      },
      x)
      .sum()
      .backward();
  EXPECT_EQ(inside, (std::vector<bool>{false, true}));
  EXPECT_FALSE(is_there);
}

// What a graph has to be there for in the first pass.
class CheckpointGraphStateTest : public DeviceTypeTest {};
TANDEM_ON_DEVICE_TYPES(CheckpointGraphStateTest);

// Gradients of weights that are left for later: once, where they were to go.
TEST_P(CheckpointGraphStateTest, WeightGradientsGoToTheFirstPassesSink) {
  const at::Tensor x = Leaf("x", {4, 6}), weight = Leaf("w", {6, 6});
  const auto layer = [weight](const at::Tensor& in) {
    return LinearFunction(in.sin(), weight, {}, WeightLayout::kOutIn).exp();
  };
  const auto sink = std::make_shared<WeightGradientSink>();
  at::Tensor y;
  {
    const WeightGradientSink::Scope scope(sink);
    y = Checkpoint(layer, x);
  }
  y.sum().backward();
  EXPECT_FALSE(weight.grad().defined());
  EXPECT_EQ(sink->size(), 1u);
  ASSERT_TRUE(sink->Flush().ok());
  const at::Tensor found = weight.grad().clone();
  weight.mutable_grad().reset();
  layer(x).sum().backward();
  EXPECT_TRUE(at::equal(found, weight.grad()));
}

TEST_P(CheckpointGraphStateTest, WhatIsNeverFlushedGoesWithTheSink) {
  const at::Tensor weight = Leaf("w", {6, 6}), second = Leaf("v", {6, 6});
  const auto layer = [weight](const at::Tensor& in) {
    return LinearFunction(in.sin(), weight, {}, WeightLayout::kOutIn).exp();
  };
  std::weak_ptr<WeightGradientSink> dropped;
  {
    const auto sink = std::make_shared<WeightGradientSink>();
    const WeightGradientSink::Scope scope(sink);
    const at::Tensor x = Checkpoint(layer, Leaf("x", {4, 6}));
    LinearFunction(x, second, {}, WeightLayout::kOutIn).sum().backward();
    EXPECT_EQ(sink->size(), 2u);
    dropped = sink;
  }
  EXPECT_TRUE(dropped.expired());
}

// What backward unpacks is not the parameter itself; its gradients come to that
// together all the same, and though the graphs are gone.
TEST_P(CheckpointGraphStateTest, WeightGradientsOfMicrobatchesAreOneSum) {
  const at::Tensor weight = Leaf("w", {6, 6});
  int times = 0;
  weight.register_hook(
      [&times](const at::Tensor& gradient) { times += gradient.defined(); });
  const auto layer = [weight](const at::Tensor& in) {
    return LinearFunction(in.sin(), weight, {}, WeightLayout::kOutIn).exp();
  };
  const auto gradient = [&](bool on) {
    std::vector<std::shared_ptr<WeightGradientSink>> sinks;
    for (const char* name : {"x", "y", "z"}) {
      sinks.push_back(std::make_shared<WeightGradientSink>());
      const WeightGradientSink::Scope scope(sinks.back());
      const at::Tensor x = Leaf(name, {4, 6});
      (on ? Checkpoint(layer, x) : layer(x)).sum().backward();
    }
    EXPECT_TRUE(WeightGradientSink::FlushTogether(sinks).ok());
    return std::exchange(weight.mutable_grad(), at::Tensor());
  };
  const at::Tensor expected = gradient(false), found = gradient(true);
  EXPECT_EQ(times, 2);
  ASSERT_TRUE(found.defined());
  EXPECT_TRUE(at::equal(found, expected));
}

TEST_P(CheckpointGraphStateTest, LossesThatAreAddedCountOnce) {
  const at::Tensor x = Leaf("x", {4});
  LossTerms terms;
  const LossTerms::Scope collecting(&terms);
  const at::Tensor y = Checkpoint(
      [](const at::Tensor& in) {
        AddAuxiliaryLoss("z", in.exp().sum());
        return in.sin().exp();
      },
      x);
  (y.sum() + terms.terms()[0].loss).backward();
  EXPECT_EQ(terms.terms().size(), 1u);
  EXPECT_TRUE(
      at::allclose(x.grad(), (x.exp() + x.cos() * x.sin().exp()).detach()));
}

}  // namespace
}  // namespace tandem::checkpoint_state_test
