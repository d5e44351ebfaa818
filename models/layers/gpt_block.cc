#include "models/layers/gpt_block.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <cmath>
#include <memory>
#include <vector>

#include "absl/strings/match.h"
#include "models/decoding/cached_attention.h"
#include "models/decoding/decoding_scope.h"
#include "models/functions/bias_gelu_function.h"
#include "models/functions/document_attention_function.h"
#include "models/functions/embedding_function.h"
#include "models/functions/linear_function.h"
#include "models/layers/layer_norm.h"
#include "models/layers/packed_layer.h"

namespace tandem {
namespace {

namespace nn = torch::nn;

constexpr double kStddev = 0.02;

// A linear layer whose weight is stored as [in, out] (transformers.Conv1D).
class Conv1D : public nn::Module {
 public:
  Conv1D(int64_t in_features, int64_t out_features)
      : weight_(register_parameter("weight",
                                   at::empty({in_features, out_features}))),
        bias_(register_parameter("bias", at::empty({out_features}))) {}

  at::Tensor forward(const at::Tensor& x) {
    return LinearFunction(x, weight_, bias_, WeightLayout::kInOut);
  }
  // Followed by GELU.
  at::Tensor ForwardGelu(const at::Tensor& x) {
    const at::Tensor product =
        LinearFunction(x, weight_, /*bias=*/{}, WeightLayout::kInOut);
    return BiasGeluFunction(product, bias_, GeluForm::kTanh);
  }

 private:
  at::Tensor weight_;
  at::Tensor bias_;
};

class Attention : public nn::Module {
 public:
  Attention(int64_t width, int64_t heads)
      : heads_(heads),
        c_attn_(register_module("c_attn",
                                std::make_shared<Conv1D>(width, 3 * width))),
        c_proj_(register_module("c_proj",
                                std::make_shared<Conv1D>(width, width))) {}

  at::Tensor forward(const at::Tensor& x, const at::Tensor& begins) {
    const at::Tensor qkv = c_attn_->forward(x);
    KvCache* const cache = DecodingScope::Current();
    return c_proj_->forward(
        cache == nullptr ? DocumentAttentionFunction(qkv, heads_, begins)
                         : Continue(qkv, *cache));
  }

 private:
  // [n, tokens, 3 * width] -> [n, tokens, width]
  at::Tensor Continue(const at::Tensor& qkv, KvCache& cache) const {
    std::vector<at::Tensor> parts = qkv.chunk(3, /*dim=*/-1);
    for (at::Tensor& part : parts) {
      part = part.unflatten(2, {heads_, part.size(2) / heads_}).transpose(1, 2);
    }
    return CachedAttention(parts[0], parts[1], parts[2], cache)
        .transpose(1, 2)
        .flatten(2);
  }

  int64_t heads_;
  std::shared_ptr<Conv1D> c_attn_;
  std::shared_ptr<Conv1D> c_proj_;
};

class Mlp : public nn::Module {
 public:
  explicit Mlp(int64_t width)
      : c_fc_(register_module("c_fc",
                              std::make_shared<Conv1D>(width, 4 * width))),
        c_proj_(register_module("c_proj",
                                std::make_shared<Conv1D>(4 * width, width))) {}

  at::Tensor forward(const at::Tensor& x) {
    return c_proj_->forward(c_fc_->ForwardGelu(x));
  }

 private:
  std::shared_ptr<Conv1D> c_fc_;
  std::shared_ptr<Conv1D> c_proj_;
};

class Block : public nn::Module {
 public:
  Block(int64_t width, int64_t heads)
      : ln_1_(register_module("ln_1", std::make_shared<LayerNorm>(width))),
        attn_(
            register_module("attn", std::make_shared<Attention>(width, heads))),
        ln_2_(register_module("ln_2", std::make_shared<LayerNorm>(width))),
        mlp_(register_module("mlp", std::make_shared<Mlp>(width))) {}

  at::Tensor forward(const at::Tensor& input, const at::Tensor& begins = {}) {
    const at::Tensor x = input + attn_->forward(ln_1_->forward(input), begins);
    return x + mlp_->forward(ln_2_->forward(x));
  }

 private:
  std::shared_ptr<LayerNorm> ln_1_;
  std::shared_ptr<Attention> attn_;
  std::shared_ptr<LayerNorm> ln_2_;
  std::shared_ptr<Mlp> mlp_;
};

class PositionEmbedding : public nn::Module {
 public:
  PositionEmbedding(int64_t context, int64_t width)
      : weight_(register_parameter("weight", at::empty({context, width}))) {}

  at::Tensor forward(const at::Tensor& x, const at::Tensor& begins = {}) {
    if (begins.defined()) {
      return x + EmbeddingFunction(PositionsWithin(begins), weight_);
    }
    const int64_t past = DecodingScope::Past();
    const at::Tensor positions =
        at::arange(past, past + x.size(1), x.options().dtype(at::kLong));
    return x + EmbeddingFunction(positions, weight_);
  }

 private:
  at::Tensor weight_;
};

}  // namespace

InitialRule GptInitialValues(int64_t blocks) {
  return [blocks](const InitialParameter& parameter) {
    const at::Tensor& values = parameter.values;
    const bool residual = absl::EndsWith(parameter.name, "c_proj.weight");
    if (values.dim() == 1) {  // a bias, or LayerNorm's weight
      values.fill_(absl::EndsWith(parameter.name, "bias") ? 0 : 1);
    } else {
      values.normal_(0, residual ? kStddev / std::sqrt(2 * blocks) : kStddev,
                     parameter.generator);
    }
  };
}

LayerSpec GptPositionEmbedding(const std::string& name, int64_t context,
                               int64_t width, const InitialRule& rule,
                               bool document_masks) {
  return PackedLayer<PositionEmbedding>(
      name, "GPT2PositionEmbedding",
      [=] { return std::make_shared<PositionEmbedding>(context, width); }, rule,
      document_masks);
}

LayerSpec GptBlock(const std::string& name, int64_t width, int64_t heads,
                   const InitialRule& rule, bool document_masks) {
  const auto make = [=] {
    TORCH_CHECK_VALUE(heads >= 1 && width % heads == 0, "block ", name,
                      " of width ", width, " and ", heads,
                      " heads: each has a part of the width, so heads must "
                      "divide it");
    return std::make_shared<Block>(width, heads);
  };
  return PackedLayer<Block>(name, "GPT2Block", make, rule, document_masks);
}

}  // namespace tandem
