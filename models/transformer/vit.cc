#include "models/transformer/vit.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <c10/util/Exception.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/model/axis/tensor_parallel.h"
#include "core/model/axis/tensor_region.h"
#include "core/model/layer.h"
#include "models/functions/activation_functions.h"
#include "models/functions/causal_attention_function.h"
#include "models/functions/linear_function.h"
#include "models/layers/adaptable_linear.h"
#include "models/layers/basic_layers.h"
#include "models/layers/basic_modules.h"
#include "models/layers/module_layer.h"
#include "models/layers/tensor_parallel_linear.h"

namespace tandem {
namespace {

constexpr double kVitEps = 1e-6;  // of its LayerNorms

struct VitBlockShape {
  int64_t width = 1;
  int64_t ffn_width = 1;
  int64_t heads = 1;   // divides the width
  int64_t tokens = 1;  // of an image
};

namespace nn = torch::nn;

class SelfAttention : public nn::Module,
                      public AdaptableLinear,
                      public TensorParallelModule {
 public:
  SelfAttention(int64_t width, int64_t heads, int64_t tokens)
      : heads_(heads),
        tokens_(tokens),
        in_proj_weight_(register_parameter("in_proj_weight",
                                           at::empty({3 * width, width}))),
        in_proj_bias_(
            register_parameter("in_proj_bias", at::empty({3 * width}))),
        out_proj_(register_module(
            "out_proj", std::make_shared<RowParallelLinear>(width, width))) {}

  at::Tensor forward(const at::Tensor& input) {
    const at::Tensor x = region_.Enter(input, tokens_);
    const at::Tensor qkv = WithAddition(
        LinearFunction(x, in_proj_weight_, in_proj_bias_, WeightLayout::kOutIn),
        x);
    const std::vector<at::Tensor> parts = SplitHeads(qkv, heads_);
    const at::Tensor seen =
        at::scaled_dot_product_attention(parts[0], parts[1], parts[2]);
    return out_proj_->forward(JoinHeads(seen));
  }

  LinearWeight linear_weight() const override {
    return {"in_proj_weight", in_proj_weight_, WeightLayout::kOutIn};
  }

  TraitsByName Divide(const TensorParallel& parallel,
                      const std::string& name) override {
    ColumnShape shape;
    shape.blocks = 3;
    shape.heads = heads_;
    TraitsByName traits =
        DivideColumns(linear_weight(), {"in_proj_bias", in_proj_bias_}, shape,
                      parallel, name)
            .traits;
    heads_ /= parallel.group->degree();
    region_ = TensorRegion(parallel, name);
    return traits;
  }

 private:
  int64_t heads_;  // of this rank
  const int64_t tokens_;
  TensorRegion region_;
  at::Tensor in_proj_weight_;
  at::Tensor in_proj_bias_;
  std::shared_ptr<RowParallelLinear> out_proj_;
};

// torchvision's MLPBlock: its dropouts and its GELU are the numbers that are
// missing.
class Mlp : public nn::Module {
 public:
  explicit Mlp(const VitBlockShape& shape)
      : tokens_(shape.tokens),
        first_(register_module(
            "0", std::make_shared<ColumnParallelLinear>(
                     ColumnShape(), shape.width, shape.ffn_width))),
        second_(register_module("3", std::make_shared<RowParallelLinear>(
                                         shape.ffn_width, shape.width))) {}

  at::Tensor forward(const at::Tensor& x) {
    return second_->forward(
        BiasGeluFunction(first_->Product(first_->Enter(x, tokens_)),
                         first_->bias, GeluForm::kNone));
  }

 private:
  const int64_t tokens_;
  std::shared_ptr<ColumnParallelLinear> first_;
  std::shared_ptr<RowParallelLinear> second_;
};

class Block : public nn::Module {
 public:
  explicit Block(const VitBlockShape& shape)
      : ln_1_(register_module(
            "ln_1", std::make_shared<LayerNorm>(shape.width, kVitEps))),
        self_attention_(register_module(
            "self_attention", std::make_shared<SelfAttention>(
                                  shape.width, shape.heads, shape.tokens))),
        ln_2_(register_module(
            "ln_2", std::make_shared<LayerNorm>(shape.width, kVitEps))),
        mlp_(register_module("mlp", std::make_shared<Mlp>(shape))) {}

  at::Tensor forward(const at::Tensor& input) {
    const at::Tensor x =
        input + self_attention_->forward(ln_1_->forward(input));
    return x + mlp_->forward(ln_2_->forward(x));
  }

 private:
  std::shared_ptr<LayerNorm> ln_1_;
  std::shared_ptr<SelfAttention> self_attention_;
  std::shared_ptr<LayerNorm> ln_2_;
  std::shared_ptr<Mlp> mlp_;
};

// All ranks compute all tokens, and so have their whole gradients.
class Positions : public nn::Module, public TensorRegionModule {
 public:
  Positions(int64_t patches, int64_t width)
      : class_token_(
            register_parameter("class_token", at::empty({1, 1, width}))),
        pos_embedding_(register_parameter(
            "pos_embedding", at::empty({1, 1 + patches, width}))) {}

  at::Tensor forward(const at::Tensor& images) {
    const at::Tensor patches = images.flatten(2).transpose(1, 2);
    const at::Tensor first = class_token_.to(patches.scalar_type())
                                 .expand({patches.size(0), -1, -1});
    return region_.Outside(at::cat({first, patches}, /*dim=*/1) +
                           pos_embedding_.to(patches.scalar_type()));
  }

 private:
  at::Tensor class_token_;
  at::Tensor pos_embedding_;
};

// All ranks compute the same of it.
class Head : public Linear, public TensorRegionModule {
 public:
  using Linear::Linear;

  at::Tensor forward(const at::Tensor& x) {
    return Linear::forward(region_.FirstToken(x));
  }
};

void XavierUniform(const InitialParameter& parameter) {
  const at::Tensor& values = parameter.values;
  const double bound = std::sqrt(6.0 / (values.size(0) + values.size(1)));
  values.uniform_(-bound, bound, parameter.generator);
}

void InitialBlock(const InitialParameter& parameter) {
  const std::string& name = parameter.name;
  const bool in_mlp = absl::StrContains(name, ".mlp.");
  if (in_mlp && absl::EndsWith(name, "bias")) {
    parameter.values.normal_(0, 1e-6, parameter.generator);
  } else if (absl::EndsWith(name, "out_proj.bias") ||
             absl::EndsWith(name, "in_proj_bias")) {
    parameter.values.zero_();
  } else if (in_mlp || absl::EndsWith(name, "in_proj_weight")) {
    XavierUniform(parameter);
  } else {
    PytorchDefault(parameter);
  }
}

// torchvision's are cut off at 2, some 50 deviations away.
void InitialPatches(const InitialParameter& parameter) {
  const at::Tensor& values = parameter.values;
  if (values.dim() == 1) {
    values.zero_();
  } else {
    const double fan_in = static_cast<double>(values.numel()) / values.size(0);
    values.normal_(0, std::sqrt(1 / fan_in), parameter.generator);
  }
}

void InitialPositions(const InitialParameter& parameter) {
  if (absl::EndsWith(parameter.name, "class_token")) {
    parameter.values.zero_();
  } else {
    parameter.values.normal_(0, 0.02, parameter.generator);
  }
}

// nn.Conv2d whose kernels are patches, beside each other.
// [n, channels, height, width] -> [n, out_width, height / patch, width / patch]
LayerSpec VitPatches(const std::string& name, int64_t channels, int64_t patch,
                     int64_t width) {
  Conv2dShape shape;
  shape.in_channels = channels;
  shape.out_channels = width;
  shape.kernel_size = patch;
  shape.stride = patch;
  return Conv2dLayer(name, shape, InitialPatches);
}

// Patches as tokens, behind a class token, with learned positions. State names:
// class_token, pos_embedding. [n, width, rows, columns] of so many patches ->
// [n, 1 + patches, width]
LayerSpec VitPositions(const std::string& name, int64_t patches,
                       int64_t width) {
  return ModuleLayer<Positions>(
      name, "ViTPositions",
      [=] { return std::make_shared<Positions>(patches, width); },
      InitialPositions);
}

// x + self_attention(ln_1(x)), then x + mlp(ln_2(x)). State names: ln_1.*,
// self_attention.in_proj_{weight,bias}, self_attention.out_proj.*, ln_2.*,
// mlp.0.*, mlp.3.*. [n, tokens, width] -> [n, tokens, width]. Making it throws
// c10::ValueError where heads do not divide the width.
LayerSpec VitBlock(const std::string& name, const VitBlockShape& shape) {
  const auto make = [name, shape] {
    TORCH_CHECK_VALUE(shape.heads >= 1 && shape.width % shape.heads == 0,
                      "block ", name, " of width ", shape.width, " and ",
                      shape.heads,
                      " heads: each has a part of the width, so heads must "
                      "divide it");
    return std::make_shared<Block>(shape);
  };
  return ModuleLayer<Block>(name, "EncoderBlock", make, InitialBlock);
}

// nn.Linear of the class token; zero at first, as in the paper.
// [n, tokens, width] -> [n, classes]
LayerSpec VitHead(const std::string& name, int64_t width, int64_t classes) {
  return ModuleLayer<Head>(
      name, "ViTHead", [=] { return std::make_shared<Head>(width, classes); },
      [](const InitialParameter& parameter) { parameter.values.zero_(); });
}

absl::Status Check(const VitOptions& options) {
  const std::pair<const char*, int64_t> sizes[] = {
      {"image_size", options.image_size},
      {"patch_size", options.patch_size},
      {"in_channels", options.in_channels},
      {"layers", options.layers},
      {"heads", options.heads},
      {"width", options.width},
      {"ffn_width", options.ffn_width},
      {"classes", options.classes}};
  for (const auto& [name, size] : sizes) {
    if (size >= 1) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("a ViT of ", name, " ", size, ": expected 1 or more"));
  }
  if (options.image_size % options.patch_size != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a ViT of image_size ", options.image_size,
                     " and patch_size ", options.patch_size,
                     ": images are cut into whole patches, so this must "
                     "divide that"));
  }
  if (options.width % options.heads == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "a ViT of width ", options.width, " and ", options.heads,
      " heads: each has a part of the width, so heads must divide it"));
}

}  // namespace

absl::StatusOr<LayerSpecs> Vit(const VitOptions& options) {
  TANDEM_RETURN_IF_ERROR(Check(options));
  const int64_t side = options.image_size / options.patch_size;
  LayerSpecs specs = {VitPatches("conv_proj", options.in_channels,
                                 options.patch_size, options.width),
                      VitPositions("encoder", side * side, options.width)};
  for (int64_t i = 0; i < options.layers; ++i) {
    specs.push_back(VitBlock(
        absl::StrCat("encoder.layers.encoder_layer_", i),
        {options.width, options.ffn_width, options.heads, 1 + side * side}));
  }
  specs.push_back(LayerNormLayer("encoder.ln", options.width, kVitEps));
  specs.push_back(VitHead("heads.head", options.width, options.classes));
  return specs;
}

}  // namespace tandem
