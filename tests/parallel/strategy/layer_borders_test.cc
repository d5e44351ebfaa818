// Where a reproducible model is cut shows in no bit, however its tensors lie in
// memory: those of a vision transformer are transposed, and what its head takes
// has gaps.

#include <ATen/Tensor.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/random/random.h"
#include "models/classification_loss.h"
#include "models/layers/module_layer.h"
#include "tests/parallel/strategy/strategy_lab.h"

namespace tandem::layer_borders_test {
namespace {

namespace nn = torch::nn;

constexpr int64_t kWidth = 48;
constexpr int64_t kClasses = 8;

// Images to 64 tokens, each with its numbers far apart.
struct Patches : nn::Module {
  Patches() {
    conv = register_module(
        "conv", nn::Conv2d(nn::Conv2dOptions(3, kWidth, 4).stride(4)));
  }
  at::Tensor forward(const at::Tensor& x) {
    return conv(x).flatten(2).transpose(1, 2);
  }
  nn::Conv2d conv{nullptr};
};

struct Block : nn::Module {
  Block() {
    norm =
        register_module("norm", nn::LayerNorm(nn::LayerNormOptions({kWidth})));
    up = register_module("up", nn::Linear(kWidth, 2 * kWidth));
    down = register_module("down", nn::Linear(2 * kWidth, kWidth));
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
  Head() { linear = register_module("linear", nn::Linear(kWidth, kClasses)); }
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

LayerSpecs VisionTransformer() {
  return {Of<Patches>("patches"), Leave(), Of<Block>("block0"),
          Of<Block>("block1"),    Join(),  Of<FirstToken>("first"),
          Of<Head>("head")};
}

LabJob Job() {
  LabJob job;
  job.specs = VisionTransformer;
  job.loss = CrossEntropy;
  job.change = [](MeshStrategyOptions& options) {
    options.reproducible = true;
    options.seed = 7;
  };
  job.batch = [](int step) {
    const at::Generator draws = GeneratorFor(7, absl::StrCat("batch ", step));
    return Batch{at::randn({16, 3, 32, 32}, draws),
                 at::randint(kClasses, {16}, draws, at::kLong), 16};
  };
  return job;
}

TEST(LayerBordersTest, ACutOfTransposedTensorsShowsInNoBit) {
  EXPECT_FALSE(Patches().forward(at::randn({2, 3, 32, 32})).is_contiguous());
  std::vector<LabLayout> layouts = {
      {"one"},
      {"two devices", "1f1b", 1, 1, 2},
      {"seven devices", "gpipe", 1, 1, 7},
      {"two ranks", "1f1b", 1, 2, 1},
      {"three ranks, zero bubble", "zb_h1", 1, 3, 1},
      {"two replicas", "1f1b", 2, 1, 1},
      {"two replicas of two ranks", "1f1b", 2, 2, 1},
      {"computed again", "1f1b", 1, 2, 1}};
  for (LabLayout& each : layouts) each.microbatches = 4;
  layouts.back().checkpointing = ActivationCheckpointing::kAlways;
  const auto one = TrainInLab(layouts.front(), Job());
  for (const LabLayout& layout : layouts) {
    SCOPED_TRACE(layout.name);
    ExpectSameBits(TrainInLab(layout, Job()), one);
  }
}

}  // namespace
}  // namespace tandem::layer_borders_test
