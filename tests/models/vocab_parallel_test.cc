// A vocabulary in parts against the undivided one: loss, score and every
// gradient, for GPT-2s and Llamas, tied and not, of vocabularies that no number
// divides.

#include "models/vocab_parallel.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <torch/csrc/autograd/autograd.h>

#include <map>
#include <string>
#include <vector>

#include "core/model/layer_list.h"
#include "core/testing/device_types.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/classification_loss.h"
#include "models/functions/cross_entropy/cross_entropy_function.h"
#include "models/functions/cross_entropy/vocab_parallel_cross_entropy_function.h"
#include "models/registry.h"
#include "models/transformer/gpt.h"
#include "models/transformer/llama.h"

namespace tandem::vocab_parallel_test {
namespace {

constexpr int64_t kTokens = 7;
constexpr int64_t kVocabulary = 31;

LayerSpecs SmallGpt(bool tied) {
  GptOptions options;
  options.layers = 1;
  options.width = 12;
  options.heads = 3;
  options.context = kTokens;
  options.vocabulary = kVocabulary;
  options.ties_lm_head = tied;
  return *Gpt(options);
}

LayerSpecs SmallLlama(bool tied) {
  LlamaOptions options;
  options.layers = 1;
  options.width = 12;
  options.ffn_width = 20;
  options.head_dim = 4;
  options.heads = 3;
  options.kv_heads = 3;
  options.context = kTokens;
  options.vocabulary = kVocabulary;
  options.ties_lm_head = tied;
  return *Llama(options);
}

struct Step {
  LossResult result;
  TensorsByName gradients;  // of whole weights
};

at::Tensor Tokens() {
  return (at::arange(2 * kTokens, at::kLong) * 11 % kVocabulary)
      .view({2, kTokens});
}

at::Tensor Targets() { return (Tokens() * 5 + 1) % kVocabulary; }

// Gradients of parts as those of the weight that they make up.
TensorsByName Joined(const NamedTensors& parameters, const RowParts& parts) {
  std::map<std::string, std::map<int64_t, at::Tensor>> rows;
  for (const auto& [name, parameter] : parameters) {
    const auto part = parts.find(name);
    const bool is_part = part != parts.end();
    rows[is_part ? part->second.weight : name]
        [is_part ? part->second.first : 0] = parameter.grad();
  }
  TensorsByName joined;
  for (const auto& [name, gradients] : rows) {
    std::vector<at::Tensor> ordered;
    for (const auto& each : gradients) ordered.push_back(each.second);
    joined[name] = at::cat(ordered);
  }
  return joined;
}

Step TrainingStep(const LayerSpecs& specs, const RowParts& parts,
                  const LossFunction& loss, at::ScalarType dtype) {
  const LayerList layers = MakeLayers(specs, 3);
  for (const auto& each : NamedParameters(layers)) {
    each.second.set_data(each.second.to(dtype));
  }
  const auto [outputs, skips] = ForwardWithSkips(
      layers, Tokens(), {{kVocabTargets, Targets()}}, loss.names().outputs);
  Step step;
  step.result = loss({outputs, skips, Targets(), {}});
  step.result.loss.backward();
  step.gradients = Joined(NamedParameters(layers), parts);
  return step;
}

void ExpectNear(const Step& ours, const Step& plain, double tolerance) {
  EXPECT_NEAR(ours.result.loss.item<double>(), plain.result.loss.item<double>(),
              tolerance * plain.result.loss.item<double>());
  EXPECT_NEAR(ours.result.score.loss_sum, plain.result.score.loss_sum,
              tolerance * plain.result.score.loss_sum);
  EXPECT_EQ(ours.result.score.correct, plain.result.score.correct);
  EXPECT_EQ(ours.result.score.count, plain.result.score.count);
  ASSERT_EQ(ours.gradients.size(), plain.gradients.size());
  for (const auto& [name, gradient] : plain.gradients) {
    ASSERT_EQ(ours.gradients.count(name), 1u) << name;
    EXPECT_LE(((ours.gradients.at(name) - gradient).norm() / gradient.norm())
                  .item<double>(),
              10 * tolerance)
        << name;
  }
}

TEST(VocabParallelTest, IsTheUndividedLoss) {
  for (const auto specs : {SmallGpt, SmallLlama}) {
    for (const bool tied : {false, true}) {
      const Step plain =
          TrainingStep(specs(tied), {}, CrossEntropy, at::kDouble);
      for (const int64_t parts : {2, 3, 31}) {
        for (const int64_t chunk : {1, 5, 1000}) {
          SCOPED_TRACE(testing::Message() << "tied " << tied << ", parts "
                                          << parts << ", chunk " << chunk);
          const auto model = DivideVocabulary(specs(tied), {parts, chunk});
          ASSERT_TRUE(model.ok()) << model.status();
          ExpectNear(TrainingStep(model->specs, model->parts,
                                  VocabParallelCrossEntropy("lm_head", parts),
                                  at::kDouble),
                     plain, 1e-13);
        }
      }
    }
  }
}

TEST(VocabParallelTest, LeavesOutIgnoredTargets) {
  const int64_t ignored = Targets()[0][3].item<int64_t>();
  const Step plain = TrainingStep(SmallGpt(true), {},
                                  CrossEntropyIgnoring(ignored), at::kDouble);
  const auto model = DivideVocabulary(SmallGpt(true), {3, 5});
  ExpectNear(TrainingStep(model->specs, model->parts,
                          VocabParallelCrossEntropy("lm_head", 3, ignored),
                          at::kDouble),
             plain, 1e-13);
}

struct Operands {
  at::Tensor x = at::randn({9, 12}, at::kDouble);
  at::Tensor weight = at::randn({11, 12}, at::kDouble);
  at::Tensor targets = at::arange(9, at::kLong);

  Operands() {
    x.requires_grad_();
    weight.requires_grad_();
  }

  at::Tensor InParts(int64_t chunk) const {
    return JoinVocabParts(
        VocabPartFunction(x, weight.narrow(0, 0, 5), targets, 0, chunk),
        VocabPartFunction(x, weight.narrow(0, 5, 6), targets, 5, chunk));
  }
};

TEST(VocabPartFunctionTest, OfEqualLogitsTheFirstIsTheGreatest) {
  Operands o;
  // Whole numbers: in whatever order they are added, sums are equal.
  o.x = at::arange(9 * 12, at::kDouble).remainder(7).reshape({9, 12});
  o.weight = at::ones({11, 12}, at::kDouble);
  const auto result =
      CrossEntropyOfVocabParts(o.InParts(4), o.targets, std::nullopt);
  EXPECT_TRUE(result.right.equal(
      CrossEntropyFunction(o.x.matmul(o.weight.t()), o.targets, {}).right));
  EXPECT_EQ(result.right.sum().item<int64_t>(), 1);
}

TEST(VocabPartFunctionTest, IsDifferentiableTwice) {
  const auto second = [](const Operands& o, bool divided) {
    const at::Tensor losses =
        divided ? CrossEntropyOfVocabParts(o.InParts(4), o.targets, {}).losses
                : CrossEntropyFunction(o.x.matmul(o.weight.t()), o.targets, {})
                      .losses;
    const auto first =
        torch::autograd::grad({losses.sum()}, {o.x}, {}, /*retain_graph=*/true,
                              /*create_graph=*/true);
    return torch::autograd::grad({first[0].square().sum()}, {o.weight})[0];
  };
  const Operands o;
  EXPECT_TRUE(second(o, true).allclose(second(o, false), 1e-10, 1e-10));
}

TEST(VocabPartFunctionTest, NoRowsHaveNoNumbers) {
  Operands o;
  o.x = at::randn({0, 12}, at::kDouble);
  o.targets = at::arange(0, at::kLong);
  EXPECT_EQ(o.InParts(4).sizes(), (std::vector<int64_t>{0, 5}));
}

// In whatever part it is looked for: negative, or behind the last class.
TEST(VocabPartFunctionTest, ATargetThatIsNoClassIsRefused) {
  for (const int64_t target : {-100, -1, 11}) {
    Operands o;
    o.targets[3] = target;
    const at::Tensor parts = o.InParts(4);
    EXPECT_THROW(CrossEntropyOfVocabParts(parts, o.targets, std::nullopt),
                 c10::Error)
        << target;
    const at::Tensor losses =
        CrossEntropyOfVocabParts(parts, o.targets, target).losses;
    EXPECT_EQ(losses[3].item<double>(), 0);
    EXPECT_GT(losses[2].item<double>(), 0);
  }
}

// The host would have to wait for the device to know of it.
TEST(VocabPartFunctionTest, OnADeviceTheLossOfSuchATargetIsNoNumber) {
  for (const c10::DeviceType type : DeviceTypesToTest()) {
    if (type == c10::kCPU) continue;
    const c10::Device device = DevicesToTest(type, 1).front();
    Operands o;
    o.targets[3] = -100;
    o.x = o.x.detach().to(device);
    o.weight = o.weight.detach().to(device);
    o.targets = o.targets.to(device);
    const at::Tensor losses =
        CrossEntropyOfVocabParts(o.InParts(4), o.targets, std::nullopt).losses;
    EXPECT_TRUE(losses.cpu().isnan().equal(at::arange(9, at::kLong).eq(3)));
  }
}

TEST(VocabParallelTest, ATargetThatIsNoClassIsRefused) {
  const auto model = DivideVocabulary(SmallGpt(true), {3, 5});
  ASSERT_TRUE(model.ok()) << model.status();
  const LayerList layers = MakeLayers(model->specs, 3);
  const LossFunction loss = VocabParallelCrossEntropy("lm_head", 3);
  at::Tensor targets = Targets();
  targets[1][2] = -100;
  const auto [outputs, skips] = ForwardWithSkips(
      layers, Tokens(), {{kVocabTargets, targets}}, loss.names().outputs);
  try {
    loss({outputs, skips, targets, {}});
    FAIL() << "no error";
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what_without_backtrace(),
                testing::HasSubstr("Target -100 is out of bounds"));
  }
}

TEST(VocabPartFunctionTest, ShapesThatDoNotFitAreRefused) {
  const Operands o;
  EXPECT_THROW(VocabPartFunction(o.x, o.weight, o.targets, 0, 0), c10::Error);
  EXPECT_THROW(VocabPartFunction(o.x, o.weight.t(), o.targets, 0, 1),
               c10::Error);
}

TEST(VocabParallelTest, WhatCannotBeDividedIsRefused) {
  const auto refusal = [](const LayerSpecs& specs, int64_t parts) {
    return std::string(DivideVocabulary(specs, {parts, 1}).status().message());
  };
  EXPECT_THAT(refusal({}, 2), testing::HasSubstr("ends in nothing"));
  EXPECT_THAT(refusal(SmallGpt(false), 1),
              testing::HasSubstr("has 31 rows to divide into 1 parts"));
  EXPECT_THAT(refusal(SmallGpt(true), 32),
              testing::HasSubstr("expected 2 to 31"));
  LayerSpecs headless = SmallGpt(false);
  headless.pop_back();
  EXPECT_THAT(refusal(headless, 2),
              testing::HasSubstr("transformer.ln_f of type LayerNorm"));
  const auto biased =
      DivideVocabulary(*MakeModel({"mlp_small", {3}, 5}), {2, 1});
  ASSERT_TRUE(biased.ok()) << biased.status();
  EXPECT_THROW(MakeLayers(biased->specs, 1), c10::Error);
}

}  // namespace
}  // namespace tandem::vocab_parallel_test
