#include "models/layers/llama/llama_block.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <memory>

#include "absl/strings/match.h"
#include "models/decoding/kv_cache.h"
#include "models/functions/causal_attention_function.h"
#include "models/functions/rms_norm_function.h"
#include "models/functions/swiglu_function.h"
#include "models/layers/linear.h"
#include "models/layers/llama/rotary.h"
#include "models/layers/module_layer.h"
#include "models/layers/packed_layer.h"

namespace tandem {
namespace {

namespace nn = torch::nn;

std::shared_ptr<Linear> MakeLinear(int64_t in_features, int64_t out_features,
                                   bool bias) {
  return std::make_shared<Linear>(
      nn::LinearOptions(in_features, out_features).bias(bias));
}

class Attention : public nn::Module {
 public:
  explicit Attention(const LlamaBlockShape& shape)
      : heads_(shape.heads),
        kv_heads_(shape.kv_heads),
        rotary_(shape.frequencies) {
    const int64_t q_width = shape.heads * shape.head_dim;
    const int64_t kv_width = shape.kv_heads * shape.head_dim;
    const bool bias = shape.attention_bias;
    q_proj_ = register_module("q_proj", MakeLinear(shape.width, q_width, bias));
    k_proj_ =
        register_module("k_proj", MakeLinear(shape.width, kv_width, bias));
    v_proj_ =
        register_module("v_proj", MakeLinear(shape.width, kv_width, bias));
    o_proj_ = register_module("o_proj", MakeLinear(q_width, shape.width, bias));
  }

  at::Tensor forward(const at::Tensor& x, const at::Tensor& begins) {
    at::Tensor queries = SplitHeads(q_proj_->forward(x), heads_);
    at::Tensor keys = SplitHeads(k_proj_->forward(x), kv_heads_);
    const at::Tensor values = SplitHeads(v_proj_->forward(x), kv_heads_);
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

  int64_t heads_;
  int64_t kv_heads_;
  Rotary rotary_;
  std::shared_ptr<Linear> q_proj_;
  std::shared_ptr<Linear> k_proj_;
  std::shared_ptr<Linear> v_proj_;
  std::shared_ptr<Linear> o_proj_;
};

class Mlp : public nn::Module {
 public:
  Mlp(int64_t width, int64_t ffn_width, bool bias)
      : gate_proj_(
            register_module("gate_proj", MakeLinear(width, ffn_width, bias))),
        up_proj_(
            register_module("up_proj", MakeLinear(width, ffn_width, bias))),
        down_proj_(
            register_module("down_proj", MakeLinear(ffn_width, width, bias))) {}

  at::Tensor forward(const at::Tensor& x) {
    return down_proj_->forward(
        SwigluFunction(gate_proj_->forward(x), up_proj_->forward(x)));
  }

 private:
  std::shared_ptr<Linear> gate_proj_;
  std::shared_ptr<Linear> up_proj_;
  std::shared_ptr<Linear> down_proj_;
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

}  // namespace

RmsNorm::RmsNorm(int64_t width, double eps)
    : weight_(register_parameter("weight", at::empty({width}))), eps_(eps) {}

at::Tensor RmsNorm::forward(const at::Tensor& x) const {
  return RmsNormFunction(x, weight_, eps_);
}

LayerSpec RmsNormLayer(const std::string& name, int64_t width, double eps,
                       const InitialRule& rule) {
  return ModuleLayer<RmsNorm>(
      name, "RMSNorm", [=] { return std::make_shared<RmsNorm>(width, eps); },
      rule);
}

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

LayerSpec LlamaBlock(const std::string& name, const LlamaBlockShape& shape,
                     const InitialRule& rule) {
  const auto make = [name, shape] {
    Check(name, shape);
    return std::make_shared<Block>(shape);
  };
  return PackedLayer<Block>(name, "LlamaDecoderLayer", make, rule,
                            shape.document_masks);
}

}  // namespace tandem
