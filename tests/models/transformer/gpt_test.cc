// What torchvision_parity_test cannot say: bits, causality, initial values.

#include "models/transformer/gpt.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include <cmath>
#include <string>

#include "absl/strings/match.h"
#include "core/model/layer_list.h"
#include "core/testing/statuses.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/models/rounding.h"
#include "tests/models/state_shapes.h"

namespace tandem::gpt_test {
namespace {

constexpr GptOptions kSmall = {/*layers=*/2, /*width=*/12, /*heads=*/3,
                               /*context=*/7, /*vocabulary=*/11};

// The obvious composition, by state names.
class Oracle {
 public:
  explicit Oracle(const LayerList& layers) : state_(ParametersByName(layers)) {}

  at::Tensor Gpt(const at::Tensor& tokens) {
    const at::Tensor positions = at::arange(tokens.size(1), at::kLong);
    at::Tensor x = at::embedding(Get("transformer.wte.weight"), tokens) +
                   at::embedding(Get("transformer.wpe.weight"), positions);
    for (int64_t i = 0; i < kSmall.layers; ++i) {
      const std::string block = "transformer.h." + std::to_string(i) + ".";
      x = x + Attention(Norm(x, block + "ln_1"), block + "attn.");
      x = x + Mlp(Norm(x, block + "ln_2"), block + "mlp.");
    }
    return at::linear(Norm(x, "transformer.ln_f"), Get("lm_head.weight"));
  }

 private:
  const at::Tensor& Get(const std::string& name) { return state_.at(name); }

  at::Tensor Norm(const at::Tensor& x, const std::string& name) {
    return at::layer_norm(x, {x.size(2)}, Get(name + ".weight"),
                          Get(name + ".bias"), 1e-5);
  }

  at::Tensor Conv1D(const at::Tensor& x, const std::string& name) {
    const at::Tensor& weight = Get(name + ".weight");
    return at::addmm(Get(name + ".bias"), x.reshape({-1, x.size(2)}), weight)
        .view({x.size(0), x.size(1), weight.size(1)});
  }

  at::Tensor Attention(const at::Tensor& x, const std::string& name) {
    std::vector<at::Tensor> qkv;
    for (const at::Tensor& part : Conv1D(x, name + "c_attn").chunk(3, 2)) {
      qkv.push_back(
          part.view({x.size(0), x.size(1), kSmall.heads, -1}).transpose(1, 2));
    }
    const at::Tensor heads = at::scaled_dot_product_attention(
        qkv[0], qkv[1], qkv[2], {}, 0, /*is_causal=*/true);
    return Conv1D(heads.transpose(1, 2).reshape(x.sizes()), name + "c_proj");
  }

  at::Tensor Mlp(const at::Tensor& x, const std::string& name) {
    return Conv1D(at::gelu(Conv1D(x, name + "c_fc"), "tanh"), name + "c_proj");
  }

  std::map<std::string, at::Tensor> state_;
};

at::Tensor Tokens(int64_t count) {
  return (at::arange(2 * count, at::kLong) * 5 % kSmall.vocabulary)
      .view({2, count});
}

TEST(GptTest, IsTheObviousCompositionWithinRounding) {
  const LayerList layers = MakeLayers(*Gpt(kSmall), 1);
  for (int64_t count : {1, 2, 7}) {
    EXPECT_TRUE(IsWithinRoundings(Forward(layers, Tokens(count)),
                                  Oracle(layers).Gpt(Tokens(count)), 64));
  }
}

TEST(GptTest, ALaterTokenChangesNoEarlierLogit) {
  const LayerList layers = MakeLayers(*Gpt(kSmall), 1);
  const at::Tensor before = Forward(layers, Tokens(7)).detach();
  at::Tensor changed = Tokens(7);
  changed.select(1, 4).add_(1).remainder_(kSmall.vocabulary);
  const at::Tensor after = Forward(layers, changed).detach();
  for (int64_t position = 0; position < 7; ++position) {
    EXPECT_EQ(after.select(1, position)
                  .allclose(before.select(1, position), 1e-6, 1e-7),
              position < 4)
        << position;
  }
}

TEST(GptTest, MoreTokensThanTheContextAreRefused) {
  EXPECT_THROW(Forward(MakeLayers(*Gpt(kSmall), 1), Tokens(8)), c10::Error);
}

TEST(GptTest, SizesThatDoNotFitAreRefusedByName) {
  const auto error = [](const GptOptions& options) {
    return std::string(Gpt(options).status().message());
  };
  GptOptions odd = kSmall;
  odd.heads = 5;
  EXPECT_EQ(error(odd),
            "a GPT of width 12 and 5 heads: each has a part of the width, so "
            "heads must divide it");
  odd.heads = 0;
  EXPECT_EQ(error(odd), "a GPT of heads 0: expected 1 or more");
}

// In a model of the user's own, too.
TEST(GptTest, ABlockWhoseHeadsDoNotDivideItsWidthIsRefusedByName) {
  for (const int64_t heads : {5, 0, -1}) {
    const auto layers =
        MakeModelLayers({GptBlock("h.3", 12, heads, GptInitialValues(1))}, 1);
    EXPECT_THAT(
        layers.status(),
        InvalidArgument("block h.3 of width 12 and " + std::to_string(heads) +
                        " heads: each has a part of the width"));
  }
}

TEST(GptTest, IsAListOfEmbeddingBlocksAndHead) {
  EXPECT_EQ(LayerNames(GptTiny()),
            (std::vector<std::string>{"transformer.wte", "transformer.wpe",
                                      "transformer.h.0", "transformer.h.1",
                                      "transformer.h.2", "transformer.h.3",
                                      "transformer.ln_f", "lm_head"}));
}

TEST(GptTest, Gpt2HasItsNumberOfParameters) {
  int64_t numel = 0;
  for (const auto& item : NamedParameters(MakeLayers(*Gpt(Gpt2Options()), 1))) {
    if (item.first != "lm_head.weight") numel += item.second.numel();
  }
  EXPECT_EQ(numel, 124439808);
}

TEST(GptTest, InitialValuesAreGpt2s) {
  for (const auto& item : NamedParameters(MakeLayers(GptTiny(), 1))) {
    const at::Tensor& values = item.second;
    if (values.dim() == 1) {
      const double value = absl::EndsWith(item.first, "weight") ? 1 : 0;
      EXPECT_TRUE(values.eq(value).all().item<bool>()) << item.first;
      continue;
    }
    const bool residual = absl::EndsWith(item.first, "c_proj.weight");
    const double stddev = residual ? 0.02 / std::sqrt(2 * 4) : 0.02;
    const double root_n = std::sqrt(values.numel());
    EXPECT_NEAR(values.std().item<double>() / stddev, 1, 3.6 / root_n)
        << item.first;
    EXPECT_NEAR(values.mean().item<double>() / stddev, 0, 5 / root_n)
        << item.first;
  }
}

}  // namespace
}  // namespace tandem::gpt_test
