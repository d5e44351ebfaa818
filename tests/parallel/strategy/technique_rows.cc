#include "tests/parallel/strategy/technique_rows.h"

#include <ATen/Tensor.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/randint.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <algorithm>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/loss/loss_terms.h"
#include "core/model/layer_list.h"
#include "core/random/random.h"
#include "models/layers/basic_layers.h"
#include "models/layers/module_layer.h"
#include "models/layers/token_embedding.h"
#include "models/transformer/gpt.h"
#include "models/transformer/llama.h"

namespace tandem {
namespace {

namespace nn = torch::nn;

// A linear layer whose weight is to be small.
LayerSpec Penalised(const std::string& name) {
  LayerSpec spec = LinearLayer(name, kModelWidth, kModelWidth);
  spec.make = [make = spec.make](uint64_t seed) {
    Layer layer = make(seed);
    const at::Tensor weight = NamedParameters({layer}).front().second;
    layer.forward = [forward = layer.forward, weight](const at::Tensor& x) {
      AddAuxiliaryLoss("l2", weight.square().sum().mul(0.1));
      return forward(x);
    };
    return layer;
  };
  return spec;
}

constexpr int64_t kTokenWidth = 48;

// Images to 64 tokens, each with its numbers far apart.
struct Patches : nn::Module {
  Patches() {
    conv = register_module(
        "conv", nn::Conv2d(nn::Conv2dOptions(3, kTokenWidth, 4).stride(4)));
  }
  at::Tensor forward(const at::Tensor& x) {
    return conv(x).flatten(2).transpose(1, 2);
  }
  nn::Conv2d conv{nullptr};
};

struct Block : nn::Module {
  Block() {
    norm = register_module("norm",
                           nn::LayerNorm(nn::LayerNormOptions({kTokenWidth})));
    up = register_module("up", nn::Linear(kTokenWidth, 2 * kTokenWidth));
    down = register_module("down", nn::Linear(2 * kTokenWidth, kTokenWidth));
  }
  at::Tensor forward(const at::Tensor& x) {
    return x + down(at::gelu(up(norm(x))));
  }
  nn::LayerNorm norm{nullptr};
  nn::Linear up{nullptr}, down{nullptr};
};

struct FirstToken : nn::Module {
  static at::Tensor forward(const at::Tensor& x) { return x.select(1, 0); }
};

struct Head : nn::Module {
  Head() { linear = register_module("linear", nn::Linear(kTokenWidth, 8)); }
  at::Tensor forward(const at::Tensor& x) { return linear(x); }
  nn::Linear linear{nullptr};
};

template <typename Module>
LayerSpec Of(const std::string& name) {
  return ModuleLayer<Module>(name, name,
                             [] { return std::make_shared<Module>(); });
}

// Hands on what it gets, and leaves the same tensor as a skip connection.
LayerSpec Leave() {
  LayerSpec spec = {"leave", "Leave", [](uint64_t) {
                      Layer layer;
                      layer.name = "leave";
                      layer.forward_with_skips = [](const at::Tensor& x,
                                                    Skips& skips) {
                        skips["patches"] = x;
                        return x;
                      };
                      return layer;
                    }};
  spec.links.stash = {"patches"};
  return spec;
}

LayerSpec Join() {
  LayerSpec spec = {"join", "Join", [](uint64_t) {
                      Layer layer;
                      layer.name = "join";
                      layer.forward_with_skips = [](const at::Tensor& x,
                                                    Skips& skips) {
                        return x + skips.at("patches") * 0.5;
                      };
                      return layer;
                    }};
  spec.links.pop = {"patches"};
  return spec;
}

}  // namespace

LayerSpecs PenalisedModel() {
  LayerSpecs specs;
  for (int i = 0; i < 8; ++i) {
    specs.push_back(Penalised(absl::StrCat("fc", i)));
    specs.push_back(ReluLayer(absl::StrCat("relu", i)));
  }
  return specs;
}

LayerSpecs TiedModel(int users, bool chained) {
  LayerSpecs specs = {LinearLayer("fc1", kModelWidth, kModelWidth)};
  LayerSpec owner = specs.front();
  for (int i = 2; i <= users; ++i) {
    specs.push_back(ReluLayer(absl::StrCat("relu", i)));
    const std::string name = absl::StrCat("fc", i);
    specs.push_back(
        TiedLinearLayer(name, owner, absl::StrCat(owner.name, ".weight")));
    if (chained) owner = specs.back();
  }
  specs.push_back(LinearLayer("head", kModelWidth, 5));
  return specs;
}

LayerSpecs SmallVisionTransformer() {
  return {Of<Patches>("patches"), Leave(), Of<Block>("block0"),
          Of<Block>("block1"),    Join(),  Of<FirstToken>("first"),
          Of<Head>("head")};
}

LayerSpecs SmallGpt(int64_t vocabulary, bool tied) {
  GptOptions options;
  options.layers = 2;
  options.width = 24;
  options.heads = 3;
  options.context = kModelTokens;
  options.vocabulary = vocabulary;
  options.ties_lm_head = tied;
  return *Gpt(options);
}

LayerSpecs SmallLlama(int64_t vocabulary, bool tied) {
  LlamaOptions options;
  options.layers = 2;
  options.width = 24;
  options.ffn_width = 40;
  options.head_dim = 6;
  options.context = kModelTokens;
  options.vocabulary = vocabulary;
  options.ties_lm_head = tied;
  return *Llama(options);
}

Batch TokenBatch(int64_t vocabulary, int64_t size, int step) {
  const at::Generator draws = GeneratorFor(5, absl::StrCat(step));
  const auto tokens = [&] {
    return at::randint(vocabulary, {size, kModelTokens}, draws, at::kLong);
  };
  return {tokens(), tokens(), size};
}

namespace {

// Training that does not move is the same everywhere.
void ExpectMoves(const absl::StatusOr<LabOutcome>& outcome) {
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  const std::vector<Score>& scores = outcome->scores;
  const auto differs = [&](const Score& score) {
    return score.loss_sum != scores.front().loss_sum;
  };
  EXPECT_TRUE(std::any_of(scores.begin(), scores.end(), differs));
}

}  // namespace

std::function<LabJob(const LabLayout& layout)> Always(const LabJob& job) {
  return [job](const LabLayout&) { return job; };
}

std::string RowName(const testing::TestParamInfo<TechniqueRow>& info) {
  return info.param.name;
}

TEST_P(TechniqueTest, ComesToTheSameInEveryLayout) {
  const TechniqueRow& row = GetParam();
  absl::StatusOr<LabOutcome> expected;
  if (!row.without) {
    expected = TrainInLab(row.reference, row.job(row.reference));
    ExpectMoves(expected);
  }
  for (const LabLayout& column : row.columns) {
    SCOPED_TRACE(column.name);
    if (row.without) expected = TrainInLab(column, *row.without);
    const auto found = TrainInLab(column, row.job(column));
    if (row.tolerance) {
      ExpectClose(found, expected, *row.tolerance);
    } else {
      ExpectSameBits(found, expected);
    }
  }
  RecordProperty("cells", static_cast<int>(row.columns.size()));
}

}  // namespace tandem
