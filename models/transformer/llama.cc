#include "models/transformer/llama.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <torch/nn/module.h>

#include <algorithm>
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
#include "core/model/layer.h"
#include "models/decoding/kv_cache.h"
#include "models/functions/activation_functions.h"
#include "models/functions/causal_attention_function.h"
#include "models/functions/norm_function.h"
#include "models/layers/initialize.h"
#include "models/layers/module_layer.h"
#include "models/layers/tensor_parallel_linear.h"
#include "models/layers/token_embedding.h"
#include "models/transformer/rotary.h"

namespace tandem {
namespace {

// torch.nn.RMSNorm(width, eps). Runs under a WeightGradientSink.
class RmsNorm : public torch::nn::Module, public TensorParallelModule {
 public:
  RmsNorm(int64_t width, double eps);
  at::Tensor forward(const at::Tensor& x) const;
  TraitsByName Divide(const TensorParallel& parallel,
                      const std::string& name) override;

 private:
  at::Tensor weight_;
  double eps_;
};

struct LlamaBlockShape {
  int64_t width = 1;
  int64_t ffn_width = 1;
  int64_t heads = 1;
  int64_t kv_heads = 1;  // divide `heads`: each is for heads / kv_heads of them
  int64_t head_dim = 2;  // even
  double rms_eps = 1e-5;
  bool attention_bias = false;
  bool mlp_bias = false;
  std::vector<double> frequencies = {};  // RotaryFrequencies of head_dim
  bool document_masks = false;
};

namespace nn = torch::nn;

std::shared_ptr<ColumnParallelLinear> MakeColumns(
    int64_t in_features, int64_t out_features, bool bias,
    const ColumnShape& shape = {}) {
  return std::make_shared<ColumnParallelLinear>(
      shape, nn::LinearOptions(in_features, out_features).bias(bias));
}

std::shared_ptr<RowParallelLinear> MakeRows(int64_t in_features,
                                            int64_t out_features, bool bias) {
  return std::make_shared<RowParallelLinear>(
      nn::LinearOptions(in_features, out_features).bias(bias));
}

ColumnShape QueryShape(int64_t heads) {
  ColumnShape shape;
  shape.heads = heads;
  return shape;
}

ColumnShape KeyValueShape(int64_t kv_heads) {
  ColumnShape shape;
  shape.heads = kv_heads;
  shape.replicates_heads = true;
  shape.things = "key-value heads";
  return shape;
}

class Attention : public nn::Module, public TensorParallelModule {
 public:
  explicit Attention(const LlamaBlockShape& shape)
      : heads_(shape.heads),
        kv_heads_(shape.kv_heads),
        rotary_(shape.frequencies) {
    const int64_t q_width = shape.heads * shape.head_dim;
    const int64_t kv_width = shape.kv_heads * shape.head_dim;
    const bool bias = shape.attention_bias;
    q_proj_ = register_module("q_proj", MakeColumns(shape.width, q_width, bias,
                                                    QueryShape(shape.heads)));
    k_proj_ = register_module("k_proj", MakeColumns(shape.width, kv_width, bias,
                                                    KeyValueShape(kv_heads_)));
    v_proj_ = register_module("v_proj", MakeColumns(shape.width, kv_width, bias,
                                                    KeyValueShape(kv_heads_)));
    o_proj_ = register_module("o_proj", MakeRows(q_width, shape.width, bias));
  }

  at::Tensor forward(const at::Tensor& input, const at::Tensor& begins) {
    const at::Tensor x = q_proj_->Enter(input);
    at::Tensor queries = SplitHeads(q_proj_->Inside(x), heads_);
    at::Tensor keys = SplitHeads(k_proj_->Inside(x), kv_heads_);
    const at::Tensor values = SplitHeads(v_proj_->Inside(x), kv_heads_);
    const Rotary::Turns turns =
        begins.defined()
            ? rotary_.AtPositions(PositionsWithin(begins), queries)
            : rotary_.At(DecodingScope::Past(), x.size(1), queries);
    queries = Turned(queries, turns);
    keys = Turned(keys, turns);
    KvCache* const cache = DecodingScope::Current();
    return o_proj_->forward(
        cache == nullptr
            ? GroupedAttentionFunction(queries, keys, values, begins)
            : Continue(queries, keys, values, *cache));
  }

  // Which key-value heads fit is for their projections to say.
  TraitsByName Divide(const TensorParallel& parallel,
                      const std::string& name) override {
    heads_ = ShareOfRank(parallel, heads_, "heads", name);
    kv_heads_ = std::max<int64_t>(1, kv_heads_ / parallel.group->degree());
    return {};
  }

 private:
  // [n, tokens, heads * d] -> [n, tokens, heads, d]
  static at::Tensor SplitHeads(const at::Tensor& x, int64_t heads) {
    return x.unflatten(2, {heads, x.size(2) / heads});
  }

  static at::Tensor Continue(const at::Tensor& queries, const at::Tensor& keys,
                             const at::Tensor& values, KvCache& cache) {
    return CachedAttention(queries.transpose(1, 2), keys.transpose(1, 2),
                           values.transpose(1, 2), cache)
        .transpose(1, 2)
        .flatten(2);
  }

  int64_t heads_;  // of this rank
  int64_t kv_heads_;
  Rotary rotary_;
  std::shared_ptr<ColumnParallelLinear> q_proj_;
  std::shared_ptr<ColumnParallelLinear> k_proj_;
  std::shared_ptr<ColumnParallelLinear> v_proj_;
  std::shared_ptr<RowParallelLinear> o_proj_;
};

class Mlp : public nn::Module {
 public:
  Mlp(int64_t width, int64_t ffn_width, bool bias)
      : gate_proj_(
            register_module("gate_proj", MakeColumns(width, ffn_width, bias))),
        up_proj_(
            register_module("up_proj", MakeColumns(width, ffn_width, bias))),
        down_proj_(
            register_module("down_proj", MakeRows(ffn_width, width, bias))) {}

  at::Tensor forward(const at::Tensor& input) {
    const at::Tensor x = gate_proj_->Enter(input);
    return down_proj_->forward(
        SwigluFunction(gate_proj_->Inside(x), up_proj_->Inside(x)));
  }

 private:
  std::shared_ptr<ColumnParallelLinear> gate_proj_;
  std::shared_ptr<ColumnParallelLinear> up_proj_;
  std::shared_ptr<RowParallelLinear> down_proj_;
};

class Block : public nn::Module {
 public:
  explicit Block(const LlamaBlockShape& shape)
      : input_layernorm_(register_module(
            "input_layernorm",
            std::make_shared<RmsNorm>(shape.width, shape.rms_eps))),
        self_attn_(
            register_module("self_attn", std::make_shared<Attention>(shape))),
        post_attention_layernorm_(register_module(
            "post_attention_layernorm",
            std::make_shared<RmsNorm>(shape.width, shape.rms_eps))),
        mlp_(register_module("mlp",
                             std::make_shared<Mlp>(shape.width, shape.ffn_width,
                                                   shape.mlp_bias))) {}

  at::Tensor forward(const at::Tensor& input, const at::Tensor& begins = {}) {
    const at::Tensor x =
        input + self_attn_->forward(input_layernorm_->forward(input), begins);
    return x + mlp_->forward(post_attention_layernorm_->forward(x));
  }

 private:
  std::shared_ptr<RmsNorm> input_layernorm_;
  std::shared_ptr<Attention> self_attn_;
  std::shared_ptr<RmsNorm> post_attention_layernorm_;
  std::shared_ptr<Mlp> mlp_;
};

void Check(const std::string& name, const LlamaBlockShape& shape) {
  TORCH_CHECK_VALUE(
      shape.kv_heads >= 1 && shape.heads % shape.kv_heads == 0, "block ", name,
      " of ", shape.heads, " heads and ", shape.kv_heads,
      " kv_heads: each of these is for a group of those, so kv_heads must "
      "divide heads");
  TORCH_CHECK_VALUE(
      2 * static_cast<int64_t>(shape.frequencies.size()) == shape.head_dim,
      "block ", name, " of head_dim ", shape.head_dim, " and ",
      shape.frequencies.size(),
      " frequencies: rotary positions turn pairs, so there must be half as "
      "many");
}

RmsNorm::RmsNorm(int64_t width, double eps)
    : weight_(register_parameter("weight", at::empty({width}))), eps_(eps) {}

at::Tensor RmsNorm::forward(const at::Tensor& x) const {
  return RmsNormFunction(x, weight_, eps_);
}

TraitsByName RmsNorm::Divide(const TensorParallel& parallel,
                             const std::string& /*name*/) {
  return SequenceTraits(parallel, {"weight"});
}

// [..., width] -> [..., width]
LayerSpec RmsNormLayer(const std::string& name, int64_t width, double eps,
                       const InitialRule& rule) {
  return ModuleLayer<RmsNorm>(
      name, "RMSNorm", [=] { return std::make_shared<RmsNorm>(width, eps); },
      rule);
}

// Hugging Face's initial values: matrices from N(0, stddev), biases 0, RMSNorm
// 1.
InitialRule LlamaInitialValues(double stddev) {
  return [stddev](const InitialParameter& parameter) {
    const at::Tensor& values = parameter.values;
    if (values.dim() == 1) {  // a bias, or RMSNorm's weight
      values.fill_(absl::EndsWith(parameter.name, "bias") ? 0 : 1);
    } else {
      values.normal_(0, stddev, parameter.generator);
    }
  };
}

// x + self_attn(input_layernorm(x)), then x +
// mlp(post_attention_layernorm(x)); attention is causal. State names:
// input_layernorm.*, self_attn.{q,k,v,o}_proj.*, post_attention_layernorm.*,
// mlp.{gate,up,down}_proj.*. [n, tokens, width] -> [n, tokens, width]. Making
// it throws c10::ValueError for heads, kv_heads and frequencies that do not
// fit. With `document_masks` it reads where documents begin
// (core/model/batch.h): attention keeps within them, and positions begin
// anew with each.
LayerSpec LlamaBlock(const std::string& name, const LlamaBlockShape& shape,
                     const InitialRule& rule) {
  const auto make = [name, shape] {
    Check(name, shape);
    return std::make_shared<Block>(shape);
  };
  return PackedLayer<Block>(name, "LlamaDecoderLayer", make, rule,
                            shape.document_masks);
}

absl::Status CheckSizes(const LlamaOptions& options) {
  const std::pair<const char*, int64_t> sizes[] = {
      {"layers", options.layers},         {"width", options.width},
      {"ffn_width", options.ffn_width},   {"heads", options.heads},
      {"kv_heads", options.kv_heads},     {"context", options.context},
      {"vocabulary", options.vocabulary},
  };
  for (const auto& [name, size] : sizes) {
    if (size >= 1) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("a Llama of ", name, " ", size, ": expected 1 or more"));
  }
  return absl::OkStatus();
}

absl::Status CheckHeads(const LlamaOptions& options) {
  if (options.heads % options.kv_heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a Llama of ", options.heads, " heads and ", options.kv_heads,
        " kv_heads: each of these is for a group of those, so kv_heads must "
        "divide heads"));
  }
  if (options.head_dim == 0 && options.width % options.heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a Llama of width ", options.width, " and ", options.heads,
        " heads: each has a part of the width, so heads must divide it, or "
        "give a head_dim"));
  }
  const int64_t head_dim = HeadDim(options);
  if (head_dim >= 2 && head_dim % 2 == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a Llama of head_dim ", head_dim,
                   ": rotary positions turn pairs, so it must be even"));
}

absl::Status CheckRotary(const LlamaOptions& options) {
  bool fits = options.rope_theta > 0;
  if (options.rope_scaling) {
    const Llama3RopeScaling& scaling = *options.rope_scaling;
    fits = fits && scaling.factor > 0 && scaling.low_freq_factor > 0 &&
           scaling.high_freq_factor > scaling.low_freq_factor &&
           scaling.original_max_position_embeddings >= 1;
  }
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "a Llama's rope_theta and rope_scaling must be greater than 0, and its "
      "high_freq_factor greater than its low_freq_factor");
}

LlamaBlockShape BlockShape(const LlamaOptions& options) {
  LlamaBlockShape shape;
  shape.width = options.width;
  shape.ffn_width = options.ffn_width;
  shape.heads = options.heads;
  shape.kv_heads = options.kv_heads;
  shape.head_dim = HeadDim(options);
  shape.rms_eps = options.rms_eps;
  shape.attention_bias = options.attention_bias;
  shape.mlp_bias = options.mlp_bias;
  shape.document_masks = options.document_masks;
  shape.frequencies = RotaryFrequencies(shape.head_dim, options.rope_theta,
                                        options.rope_scaling);
  return shape;
}

}  // namespace

int64_t HeadDim(const LlamaOptions& options) {
  return options.head_dim > 0 ? options.head_dim
                              : options.width / options.heads;
}

absl::StatusOr<LayerSpecs> Llama(const LlamaOptions& options) {
  TANDEM_RETURN_IF_ERROR(CheckSizes(options));
  TANDEM_RETURN_IF_ERROR(CheckHeads(options));
  TANDEM_RETURN_IF_ERROR(CheckRotary(options));
  const InitialRule rule = LlamaInitialValues(options.initial_stddev);
  LayerSpecs specs = {TokenEmbeddingLayer(
      "model.embed_tokens", options.vocabulary, options.width, rule)};
  const LlamaBlockShape shape = BlockShape(options);
  for (int64_t i = 0; i < options.layers; ++i) {
    specs.push_back(LlamaBlock(absl::StrCat("model.layers.", i), shape, rule));
  }
  specs.push_back(
      RmsNormLayer("model.norm", options.width, options.rms_eps, rule));
  if (options.ties_lm_head) {
    specs.push_back(
        TiedLinearLayer("lm_head", specs.front(), "model.embed_tokens.weight"));
  } else {
    specs.push_back(
        LinearHeadLayer("lm_head", options.width, options.vocabulary, rule));
  }
  return specs;
}

}  // namespace tandem
