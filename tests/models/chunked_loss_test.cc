// The chunked loss against the plain one: loss, score and every gradient, tied
// and not, in float, double and bf16; and what memory it does without, on
// simulated devices.

#include "models/chunked_loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones_like.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/model/gradient_place.h"
#include "core/model/layer_list.h"
#include "core/sim/memory/memory.h"
#include "core/sim/sim.h"
#include "core/testing/statuses.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/classification_loss.h"
#include "models/functions/cross_entropy/linear_cross_entropy_function.h"
#include "models/registry.h"
#include "tests/models/formula_values.h"

namespace tandem {
namespace {

// Before the first backward, which makes autograd's threads.
class WithSim : public testing::Environment {
 public:
  void SetUp() override { ASSERT_TRUE(EnableSim().ok()); }
};

testing::Environment* const with_sim =
    testing::AddGlobalTestEnvironment(new WithSim);

constexpr char kHead[] = "lm_head.weight";
constexpr int64_t kTokens = 7;

at::Tensor Tokens(int64_t samples) {
  return (at::arange(samples * kTokens, at::kLong) * 11 % 256)
      .view({samples, kTokens});
}

LayerSpecs Specs(const std::string& name) {
  return *MakeModel({name, {kTokens}, 256, true});
}

struct Step {
  LossResult result;
  NamedTensors parameters;
};

Step Run(const LayerSpecs& specs, const LossFunction& loss,
         at::ScalarType dtype) {
  const LayerList layers = MakeLayers(specs, 1);
  FillByFormula(layers, dtype);
  const at::Tensor tokens = Tokens(2);
  auto [outputs, skips] =
      ForwardWithSkips(layers, tokens, {}, loss.names().outputs);
  Step step;
  step.result = loss({outputs, skips, (tokens * 5 + 1) % 256, {}});
  step.result.loss.backward();
  step.parameters = NamedParameters(layers);
  return step;
}

double RelativeDistance(const at::Tensor& a, const at::Tensor& b) {
  return ((a - b).norm() / b.norm()).item<double>();
}

void ExpectThePlainLoss(const std::string& name, at::ScalarType dtype,
                        double tolerance) {
  const Step plain = Run(Specs(name), CrossEntropy, dtype);
  for (const int64_t chunk : {1, 3, 7, 14, 100}) {
    SCOPED_TRACE(chunk);
    const Step ours = Run(*WithoutLogits(Specs(name)),
                          ChunkedCrossEntropy(kHead, chunk), dtype);
    EXPECT_NEAR(ours.result.loss.item<double>(),
                plain.result.loss.item<double>(),
                tolerance * plain.result.loss.item<double>());
    EXPECT_NEAR(ours.result.score.loss_sum, plain.result.score.loss_sum,
                tolerance * plain.result.score.loss_sum);
    EXPECT_EQ(ours.result.score.correct, plain.result.score.correct);
    EXPECT_EQ(ours.result.score.count, 2 * kTokens);
    ASSERT_EQ(ours.parameters.size(), plain.parameters.size());
    for (size_t i = 0; i < ours.parameters.size(); ++i) {
      EXPECT_EQ(ours.parameters[i].first, plain.parameters[i].first);
      EXPECT_LE(RelativeDistance(ours.parameters[i].second.grad(),
                                 plain.parameters[i].second.grad()),
                10 * tolerance)
          << ours.parameters[i].first;
    }
  }
}

TEST(ChunkedLossTest, IsThePlainLoss) {
  for (const char* name :
       {"gpt_tiny", "gpt_tiny_tied", "llama_tiny", "llama_tiny_tied"}) {
    SCOPED_TRACE(name);
    ExpectThePlainLoss(name, at::kFloat, 1e-6);
    ExpectThePlainLoss(name, at::kDouble, 1e-14);
  }
}

// x [9, 12], weight [11, 12] and targets with some to ignore.
struct Operands {
  at::Tensor x = at::empty({9, 12});
  at::Tensor weight = at::empty({11, 12});
  at::Tensor targets = at::arange(9, at::kLong) % 4 - 1;

  explicit Operands(at::ScalarType dtype) {
    FillByFormula("input", x);
    FillByFormula("weight", weight);
    x = x.to(dtype).requires_grad_();
    weight.requires_grad_();
  }

  at::Tensor Losses(int64_t chunk) const {
    return LinearCrossEntropyFunction(x, weight, targets, -1, chunk).losses;
  }
};

TEST(LinearCrossEntropyFunctionTest, IgnoredRowsHaveNoPart) {
  const Operands o(at::kFloat);
  const CrossEntropyResult ours =
      LinearCrossEntropyFunction(o.x, o.weight, o.targets, -1, 4);
  const CrossEntropyResult plain =
      CrossEntropyFunction(o.x.matmul(o.weight.t()), o.targets, -1);
  EXPECT_TRUE(ours.losses.allclose(plain.losses, 1e-6, 1e-6));
  EXPECT_TRUE(ours.right.equal(plain.right));
  ours.losses.sum().backward();
  EXPECT_EQ(o.x.grad()[0].abs().sum().item<double>(), 0);
  EXPECT_GT(o.x.grad()[1].abs().sum().item<double>(), 0);
}

TEST(LinearCrossEntropyFunctionTest, OfBf16TheWeightsGradientIsItsOwnDtypes) {
  const Operands o(at::kBFloat16);
  const at::Tensor losses = o.Losses(4);
  EXPECT_EQ(losses.scalar_type(), at::kFloat);
  losses.sum().backward();
  EXPECT_EQ(o.weight.grad().scalar_type(), at::kFloat);
  EXPECT_EQ(o.x.grad().scalar_type(), at::kBFloat16);
  const Operands wide(at::kFloat);
  wide.Losses(4).sum().backward();
  EXPECT_LE(RelativeDistance(o.weight.grad(), wide.weight.grad()), 0.02);
}

TEST(LinearCrossEntropyFunctionTest, IsDifferentiableTwice) {
  const auto second = [](bool chunked) {
    const Operands o(at::kFloat);
    const at::Tensor losses =
        chunked ? o.Losses(4)
                : CrossEntropyFunction(o.x.matmul(o.weight.t()), o.targets, -1)
                      .losses;
    const auto first = torch::autograd::grad({losses.sum()}, {o.x}, {},
                                             /*retain_graph=*/true,
                                             /*create_graph=*/true);
    first[0].square().sum().backward();
    return o.weight.grad();
  };
  EXPECT_LE(RelativeDistance(second(true), second(false)), 1e-5);
}

TEST(LinearCrossEntropyFunctionTest, ShapesThatDoNotFitAreRefused) {
  const Operands o(at::kFloat);
  EXPECT_THROW(LinearCrossEntropyFunction(o.x, o.weight, o.targets, {}, 0),
               c10::Error);
  EXPECT_THROW(LinearCrossEntropyFunction(o.x, o.weight.t(), o.targets, {}, 1),
               c10::Error);
}

// Where a weight's gradient is to lie.
class Place : public GradientPlace {
 public:
  Place(at::Tensor weight, at::Tensor memory)
      : weight_(std::move(weight)), memory_(std::move(memory)) {}

 protected:
  at::Tensor Find() override {
    return weight_.grad().defined() ? at::Tensor() : memory_;
  }
  void Begin(IsFinite /*is_finite*/) override {
    weight_.mutable_grad() = memory_;
  }
  void Complete(bool /*has_added*/) override {}

 private:
  at::Tensor weight_;
  const at::Tensor memory_;
};

// No tensor of the weight's size is made for it; a view is what a head leaves.
TEST(LinearCrossEntropyFunctionTest, PutsTheWeightsGradientInItsPlace) {
  for (const bool as_view : {false, true}) {
    const Operands plain(at::kFloat);
    plain.Losses(4).sum().backward();
    const Operands o(at::kFloat);
    const at::Tensor memory = at::ones_like(o.weight.detach());
    const auto accumulator = torch::autograd::impl::grad_accumulator(o.weight);
    accumulator->add_post_hook(std::make_unique<Place>(o.weight, memory));
    const at::Tensor weight = as_view ? o.weight.view_as(o.weight) : o.weight;
    LinearCrossEntropyFunction(o.x, weight, o.targets, -1, 4)
        .losses.sum()
        .backward();
    EXPECT_TRUE(o.weight.grad().is_alias_of(memory)) << as_view;
    EXPECT_TRUE(o.weight.grad().equal(plain.weight.grad())) << as_view;
    EXPECT_TRUE(o.x.grad().equal(plain.x.grad())) << as_view;
  }
}

// Peak bytes of loss and backward, above what is there before.
int64_t PeakBytes(int64_t chunk) {
  constexpr int64_t kRows = 512, kWidth = 16, kClasses = 4096;
  const c10::Device device = SimDevice(0);
  const at::Tensor x =
      at::ones_like(at::empty({kRows, kWidth})).to(device).requires_grad_();
  const at::Tensor weight =
      at::ones_like(at::empty({kClasses, kWidth})).to(device).requires_grad_();
  const at::Tensor targets = at::arange(kRows, at::kLong).to(device);
  const int64_t before = sim::DeviceMemoryStatistics(0).now.total;
  sim::ResetPeak(0);
  const at::Tensor losses =
      chunk > 0
          ? LinearCrossEntropyFunction(x, weight, targets, {}, chunk).losses
          : CrossEntropyFunction(x.matmul(weight.t()), targets, {}).losses;
  losses.sum().backward();
  return sim::DeviceMemoryStatistics(0).peak.total - before;
}

TEST(ChunkedLossTest, NeedsMemoryForTwoChunksOfLogits) {
  constexpr int64_t kLogits = 512 * 4096 * sizeof(float);
  constexpr int64_t kWeight = 4096 * 16 * sizeof(float);
  EXPECT_GE(PeakBytes(0), 2 * kLogits);
  const int64_t chunked = PeakBytes(32);
  EXPECT_GE(chunked, kLogits / 16);
  EXPECT_LE(chunked, 2 * kLogits / 16 + 3 * kWeight);
}

TEST(ChunkedLossTest, OtherLastLayersAreRefused) {
  EXPECT_THAT(WithoutLogits({}).status(), Says("ends in nothing"));
  LayerSpecs headless = Specs("gpt_tiny");
  headless.pop_back();
  EXPECT_THAT(WithoutLogits(headless).status(),
              Says("transformer.ln_f of type LayerNorm"));
  const LayerSpecs biased = *WithoutLogits(*MakeModel({"mlp_small", {3}, 5}));
  EXPECT_THROW(MakeLayers(biased, 1), c10::Error);
}

}  // namespace
}  // namespace tandem
