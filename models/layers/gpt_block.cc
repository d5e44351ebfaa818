#include "models/layers/gpt_block.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "absl/strings/match.h"
#include "models/decoding/kv_cache.h"
#include "models/functions/bias_gelu_function.h"
#include "models/functions/causal_attention_function.h"
#include "models/functions/embedding_function.h"
#include "models/functions/linear_function.h"
#include "models/layers/dropout.h"
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
  Attention(const std::string& name, int64_t width, int64_t heads,
            double dropout)
      : heads_(heads),
        dropout_(dropout),
        draws_(name + ".attn_dropout"),
        c_attn_(register_module("c_attn",
                                std::make_shared<Conv1D>(width, 3 * width))),
        c_proj_(
            register_module("c_proj", std::make_shared<Conv1D>(width, width))),
        resid_dropout_(register_module(
            "resid_dropout",
            std::make_shared<Dropout>(name + ".resid_dropout", dropout))) {}

  at::Tensor forward(const at::Tensor& x, const at::Tensor& begins) {
    const at::Tensor qkv = c_attn_->forward(x);
    return resid_dropout_->forward(c_proj_->forward(Attend(qkv, begins)));
  }

 private:
  // [n, tokens, 3 * width] -> [n, tokens, width]
  at::Tensor Attend(const at::Tensor& qkv, const at::Tensor& begins) const {
    KvCache* const cache = DecodingScope::Current();
    if (cache != nullptr) return Continue(qkv, *cache);
    if (dropout_ > 0 && is_training()) {
      return DroppedAttention(qkv, heads_, begins, dropout_, draws_);
    }
    return DocumentAttentionFunction(qkv, heads_, begins);
  }

  at::Tensor Continue(const at::Tensor& qkv, KvCache& cache) const {
    const std::vector<at::Tensor> parts = SplitHeads(qkv, heads_);
    return JoinHeads(CachedAttention(parts[0], parts[1], parts[2], cache));
  }

  int64_t heads_;
  double dropout_;
  std::string draws_;
  std::shared_ptr<Conv1D> c_attn_;
  std::shared_ptr<Conv1D> c_proj_;
  std::shared_ptr<Dropout> resid_dropout_;
};

class Mlp : public nn::Module {
 public:
  Mlp(const std::string& name, int64_t width, double dropout)
      : c_fc_(register_module("c_fc",
                              std::make_shared<Conv1D>(width, 4 * width))),
        c_proj_(register_module("c_proj",
                                std::make_shared<Conv1D>(4 * width, width))),
        dropout_(register_module(
            "dropout", std::make_shared<Dropout>(name + ".dropout", dropout))) {
  }

  at::Tensor forward(const at::Tensor& x) {
    return dropout_->forward(c_proj_->forward(c_fc_->ForwardGelu(x)));
  }

 private:
  std::shared_ptr<Conv1D> c_fc_;
  std::shared_ptr<Conv1D> c_proj_;
  std::shared_ptr<Dropout> dropout_;
};

class Block : public nn::Module {
 public:
  Block(const std::string& name, int64_t width, int64_t heads, double dropout)
      : ln_1_(register_module("ln_1", std::make_shared<LayerNorm>(width))),
        attn_(register_module(
            "attn", std::make_shared<Attention>(name + ".attn", width, heads,
                                                dropout))),
        ln_2_(register_module("ln_2", std::make_shared<LayerNorm>(width))),
        mlp_(register_module(
            "mlp", std::make_shared<Mlp>(name + ".mlp", width, dropout))) {}

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
  PositionEmbedding(const std::string& name, int64_t context, int64_t width,
                    double dropout)
      : weight_(register_parameter("weight", at::empty({context, width}))),
        drop_(register_module(
            "drop", std::make_shared<Dropout>(name + ".drop", dropout))) {}

  at::Tensor forward(const at::Tensor& x, const at::Tensor& begins = {}) {
    const at::Tensor positions =
        begins.defined() ? PositionsWithin(begins) : AllPositions(x);
    return drop_->forward(x + EmbeddingFunction(positions, weight_));
  }

 private:
  static at::Tensor AllPositions(const at::Tensor& x) {
    const int64_t past = DecodingScope::Past();
    return at::arange(past, past + x.size(1), x.options().dtype(at::kLong));
  }

  at::Tensor weight_;
  std::shared_ptr<Dropout> drop_;
};

}  // namespace

at::Tensor DroppedAttention(const at::Tensor& qkv, int64_t heads,
                            const at::Tensor& begins, double p,
                            absl::string_view name) {
  const std::vector<at::Tensor> parts = SplitHeads(qkv, heads);
  const at::Tensor seen =
      SeenKeys(begins.defined() ? begins
                                : at::zeros({1, qkv.size(1)},
                                            qkv.options().dtype(at::kLong)));
  const at::Tensor scores = at::matmul(parts[0], parts[1].transpose(2, 3)) /
                            std::sqrt(static_cast<double>(parts[0].size(3)));
  const at::Tensor probabilities = at::softmax(
      scores.masked_fill(~seen, -std::numeric_limits<double>::infinity()), -1);
  return JoinHeads(at::matmul(SampleDropout(probabilities, p, name), parts[2]));
}

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
                               const GptLayerOptions& options) {
  return PackedLayer<PositionEmbedding>(
      name, "GPT2PositionEmbedding",
      [=] {
        return std::make_shared<PositionEmbedding>(name, context, width,
                                                   options.dropout);
      },
      rule, options.document_masks);
}

LayerSpec GptBlock(const std::string& name, int64_t width, int64_t heads,
                   const InitialRule& rule, const GptLayerOptions& options) {
  const auto make = [=] {
    TORCH_CHECK_VALUE(heads >= 1 && width % heads == 0, "block ", name,
                      " of width ", width, " and ", heads,
                      " heads: each has a part of the width, so heads must "
                      "divide it");
    return std::make_shared<Block>(name, width, heads, options.dropout);
  };
  return PackedLayer<Block>(name, "GPT2Block", make, rule,
                            options.document_masks);
}

}  // namespace tandem
