// GPT's dropout: where it drops, what it draws by, and that evaluation has
// none.

#include "models/layers/dropout.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>

#include <string>

#include "core/context/compute_context.h"
#include "core/model/batch.h"
#include "core/model/layer_list.h"
#include "core/testing/statuses.h"
#include "models/functions/causal_attention_function.h"
#include "models/transformer/gpt.h"
#include "tests/models/rounding.h"
#include "tests/models/state_shapes.h"

namespace tandem::dropout_test {
namespace {

using torch::autograd::grad;

constexpr double kDropout = 0.3;
constexpr Samples kSamples = {/*seed=*/5, /*step=*/2, /*first=*/10};

GptOptions Small(double dropout = kDropout) {
  GptOptions options;
  options.layers = 1;
  options.width = 12;
  options.heads = 3;
  options.context = 7;
  options.vocabulary = 11;
  options.dropout = dropout;
  return options;
}

LayerList InDoubles(const GptOptions& options) {
  LayerList layers = MakeLayers(*Gpt(options), /*seed=*/1);
  for (const Layer& layer : layers) layer.module->to(at::kDouble);
  return layers;
}

at::Tensor Tokens() { return at::randint(11, {4, 7}, at::kLong); }

// The obvious composition, by state names and by those of the places.
at::Tensor Composed(const LayerList& layers, const at::Tensor& tokens) {
  const auto state = ParametersByName(layers);
  const auto norm = [&](const at::Tensor& x, const std::string& name) {
    return at::layer_norm(x, {12}, state.at(name + ".weight"),
                          state.at(name + ".bias"), 1e-5);
  };
  const auto conv = [&](const at::Tensor& x, const std::string& name) {
    return at::linear(x, state.at(name + ".weight").t(),
                      state.at(name + ".bias"));
  };
  const auto drop = [](const at::Tensor& x, const std::string& place) {
    return SampleDropout(x, kDropout, place);
  };
  const std::string h = "transformer.h.0.";
  at::Tensor x =
      at::embedding(state.at("transformer.wte.weight"), tokens) +
      at::embedding(state.at("transformer.wpe.weight"), at::arange(7));
  x = drop(x, "transformer.wpe.drop");
  const at::Tensor qkv = conv(norm(x, h + "ln_1"), h + "attn.c_attn");
  const at::Tensor attended = DroppedAttention(qkv, 3, /*begins=*/{}, kDropout,
                                               h + "attn.attn_dropout");
  x = x + drop(conv(attended, h + "attn.c_proj"), h + "attn.resid_dropout");
  const at::Tensor inner =
      at::gelu(conv(norm(x, h + "ln_2"), h + "mlp.c_fc"), "tanh");
  x = x + drop(conv(inner, h + "mlp.c_proj"), h + "mlp.dropout");
  return at::linear(norm(x, "transformer.ln_f"), state.at("lm_head.weight"));
}

TEST(GptDropoutTest, DropsWhereGpt2Does) {
  const LayerList layers = InDoubles(Small());
  const at::Tensor tokens = Tokens();
  const SampleScope scope(kSamples);
  EXPECT_LT(
      LargestDifference(Forward(layers, tokens), Composed(layers, tokens)),
      1e-12);
}

TEST(GptDropoutTest, ASampleDropsTheSameInAnyMicrobatch) {
  const LayerList layers = InDoubles(Small());
  const at::Tensor tokens = Tokens();
  const auto logits = [&](int64_t first, int64_t count) {
    const SampleScope scope({kSamples.seed, kSamples.step, 10 + first});
    return Forward(layers, tokens.narrow(0, first, count));
  };
  const at::Tensor whole = logits(0, 4);
  EXPECT_LT(LargestDifference(at::cat({logits(0, 1), logits(1, 3)}), whole),
            1e-12);
  const SampleScope next({kSamples.seed, kSamples.step + 1, 10});
  EXPECT_GT(LargestDifference(Forward(layers, tokens), whole), 1e-3);
}

TEST(GptDropoutTest, EvaluationHasNone) {
  const LayerList layers = InDoubles(Small());
  const at::Tensor tokens = Tokens();
  const SampleScope scope(kSamples);
  SetTraining(layers, false);
  const at::Tensor evaluated = Forward(layers, tokens);
  EXPECT_TRUE(evaluated.equal(Forward(InDoubles(Small(0)), tokens)));
}

// Where nothing is dropped it is attention as ever, within documents, too.
TEST(GptDropoutTest, AttentionKeepsWithinDocuments) {
  const SampleScope scope(kSamples);
  const at::Tensor begins = at::tensor({0, 0, 2, 2, 2}, at::kLong).view({1, 5});
  for (const at::Tensor& documents : {at::Tensor(), begins}) {
    const at::Tensor mine =
        at::randn({1, 5, 36}, at::kDouble).set_requires_grad(true);
    const at::Tensor copy = mine.detach().clone().set_requires_grad(true);
    const at::Tensor y = DroppedAttention(mine, 3, documents, 0, "place");
    const at::Tensor expected = DocumentAttentionFunction(copy, 3, documents);
    EXPECT_LT(LargestDifference(y, expected), 1e-12);
    const at::Tensor dy = at::randn(y.sizes(), at::kDouble);
    EXPECT_LT(LargestDifference(grad({y}, {mine}, {dy})[0],
                                grad({expected}, {copy}, {dy})[0]),
              1e-12);
  }
}

// All that is left of a row whose values are alike is what is not dropped.
TEST(GptDropoutTest, ProbabilitiesAreDroppedAndTheOthersGrow) {
  const SampleScope scope(kSamples);
  at::Tensor qkv = at::randn({2, 40, 36}, at::kDouble);
  qkv.narrow(2, 24, 12).fill_(1);
  const at::Tensor y = DroppedAttention(qkv, 3, {}, kDropout, "place");
  EXPECT_NEAR(y.mean().item<double>(), 1, 0.05);
  EXPECT_GT(LargestDifference(y, qkv.narrow(2, 24, 12)), 0.1);
}

TEST(GptDropoutTest, OnlyProbabilitiesAreTaken) {
  EXPECT_THAT(Gpt(Small(1.5)).status(), Says("dropout 1.5: expected 0 to 1"));
  EXPECT_THAT(Gpt(Small(-0.1)).status(), Says("dropout -0.1"));
}

}  // namespace
}  // namespace tandem::dropout_test
