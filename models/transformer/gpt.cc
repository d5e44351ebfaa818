#include "models/transformer/gpt.h"

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
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/tensors.h"
#include "core/model/axis/tensor_parallel.h"
#include "core/model/axis/tensor_region.h"
#include "models/decoding/kv_cache.h"
#include "models/functions/activation_functions.h"
#include "models/functions/causal_attention_function.h"
#include "models/functions/embedding_function.h"
#include "models/functions/linear_function.h"
#include "models/layers/adaptable_linear.h"
#include "models/layers/basic_layers.h"
#include "models/layers/basic_modules.h"
#include "models/layers/dropout.h"
#include "models/layers/module_layer.h"
#include "models/layers/tensor_parallel_linear.h"
#include "models/layers/token_embedding.h"

namespace tandem {
namespace {

namespace nn = torch::nn;

constexpr double kStddev = 0.02;

// A linear layer whose weight is stored as [in, out] (transformers.Conv1D).
class Conv1D : public nn::Module, public AdaptableLinear {
 public:
  Conv1D(int64_t in_features, int64_t out_features)
      : weight_(register_parameter("weight",
                                   at::empty({in_features, out_features}))),
        bias_(register_parameter("bias", at::empty({out_features}))) {}

  at::Tensor forward(const at::Tensor& x) {
    return WithAddition(LinearFunction(x, weight_, bias_, WeightLayout::kInOut),
                        x);
  }
  // Without the bias, which what follows adds.
  at::Tensor Product(const at::Tensor& x) const {
    return WithAddition(
        LinearFunction(x, weight_, /*bias=*/{}, WeightLayout::kInOut), x);
  }

  LinearWeight linear_weight() const override {
    return {"weight", weight_, WeightLayout::kInOut};
  }
  NamedTensors::value_type linear_bias() const { return {"bias", bias_}; }

 private:
  at::Tensor weight_;
  at::Tensor bias_;
};

using ColumnConv1D = ColumnParallel<Conv1D>;
using RowConv1D = RowParallel<Conv1D>;

// Queries, keys and values side by side.
ColumnShape QkvShape(int64_t heads) {
  ColumnShape shape;
  shape.blocks = 3;
  shape.heads = heads;
  return shape;
}

class Attention : public nn::Module, public TensorParallelModule {
 public:
  Attention(const std::string& name, int64_t width, int64_t heads,
            double dropout)
      : heads_(heads),
        dropout_(dropout),
        draws_(name + ".attn_dropout"),
        c_attn_(register_module(
            "c_attn",
            std::make_shared<ColumnConv1D>(QkvShape(heads), width, 3 * width))),
        c_proj_(register_module("c_proj",
                                std::make_shared<RowConv1D>(width, width))),
        resid_dropout_(register_module(
            "resid_dropout",
            std::make_shared<Dropout>(name + ".resid_dropout", dropout))) {}

  at::Tensor forward(const at::Tensor& x, const at::Tensor& begins) {
    const at::Tensor qkv = c_attn_->forward(x);
    return resid_dropout_->forward(c_proj_->forward(Attend(qkv, begins)));
  }

  TraitsByName Divide(const TensorParallel& parallel,
                      const std::string& name) override {
    heads_ = ShareOfRank(parallel, heads_, "heads", name);
    region_ = TensorRegion(parallel, name);
    return {};
  }

 private:
  // [n, tokens, 3 * width] -> [n, tokens, width]
  at::Tensor Attend(const at::Tensor& qkv, const at::Tensor& begins) const {
    KvCache* const cache = DecodingScope::Current();
    if (cache != nullptr) return Continue(qkv, *cache);
    if (dropout_ > 0 && is_training()) {
      CheckDrawsAlike(region_, draws_);
      return DroppedAttention(qkv, heads_, begins, dropout_, draws_,
                              region_.index() * heads_);
    }
    return DocumentAttentionFunction(qkv, heads_, begins);
  }

  at::Tensor Continue(const at::Tensor& qkv, KvCache& cache) const {
    const std::vector<at::Tensor> parts = SplitHeads(qkv, heads_);
    return JoinHeads(CachedAttention(parts[0], parts[1], parts[2], cache));
  }

  int64_t heads_;  // of this rank
  double dropout_;
  std::string draws_;
  TensorRegion region_;
  std::shared_ptr<ColumnConv1D> c_attn_;
  std::shared_ptr<RowConv1D> c_proj_;
  std::shared_ptr<Dropout> resid_dropout_;
};

class Mlp : public nn::Module {
 public:
  Mlp(const std::string& name, int64_t width, double dropout)
      : c_fc_(register_module("c_fc", std::make_shared<ColumnConv1D>(
                                          ColumnShape(), width, 4 * width))),
        c_proj_(register_module("c_proj",
                                std::make_shared<RowConv1D>(4 * width, width))),
        dropout_(register_module(
            "dropout", std::make_shared<Dropout>(name + ".dropout", dropout))) {
  }

  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor inner =
        BiasGeluFunction(c_fc_->Product(c_fc_->Enter(x)),
                         c_fc_->linear_bias().second, GeluForm::kTanh);
    return dropout_->forward(c_proj_->forward(inner));
  }

 private:
  std::shared_ptr<ColumnConv1D> c_fc_;
  std::shared_ptr<RowConv1D> c_proj_;
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

class PositionEmbedding : public nn::Module, public TensorParallelModule {
 public:
  PositionEmbedding(const std::string& name, int64_t context, int64_t width,
                    double dropout)
      : weight_(register_parameter("weight", at::empty({context, width}))),
        drop_(register_module(
            "drop", std::make_shared<Dropout>(name + ".drop", dropout))) {}

  at::Tensor forward(const at::Tensor& x, const at::Tensor& begins = {}) {
    const at::Tensor positions =
        begins.defined() ? PositionsInDocuments(x, begins) : AllPositions(x);
    return drop_->forward(x + EmbeddingFunction(positions, weight_));
  }

  TraitsByName Divide(const TensorParallel& parallel,
                      const std::string& name) override {
    region_ = TensorRegion(parallel, name);
    return SequenceTraits(parallel, {"weight"});
  }

 private:
  at::Tensor AllPositions(const at::Tensor& x) const {
    const int64_t first =
        DecodingScope::Past() + region_.FirstPosition(x.size(1));
    return at::arange(first, first + x.size(1), x.options().dtype(at::kLong));
  }

  // Positions of x's tokens; `begins` is of the tokens of all ranks.
  at::Tensor PositionsInDocuments(const at::Tensor& x,
                                  const at::Tensor& begins) const {
    return PositionsWithin(begins).narrow(1, region_.FirstPosition(x.size(1)),
                                          x.size(1));
  }

  at::Tensor weight_;
  TensorRegion region_;
  std::shared_ptr<Dropout> drop_;
};

}  // namespace

at::Tensor DroppedAttention(const at::Tensor& qkv, int64_t heads,
                            const at::Tensor& begins, double p,
                            absl::string_view name, int64_t first_head) {
  const std::vector<at::Tensor> parts = SplitHeads(qkv, heads);
  const at::Tensor seen =
      SeenKeys(begins.defined() ? begins
                                : at::zeros({1, qkv.size(1)},
                                            qkv.options().dtype(at::kLong)));
  const at::Tensor scores = at::matmul(parts[0], parts[1].transpose(2, 3)) /
                            std::sqrt(static_cast<double>(parts[0].size(3)));
  const at::Tensor probabilities = at::softmax(
      scores.masked_fill(~seen, -std::numeric_limits<double>::infinity()), -1);
  SamplePart part;
  part.begin = first_head * qkv.size(1) * qkv.size(1);
  return JoinHeads(
      at::matmul(SampleDropout(probabilities, p, name, part), parts[2]));
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

namespace {

absl::Status Check(const GptOptions& options) {
  const std::pair<const char*, int64_t> sizes[] = {
      {"layers", options.layers},
      {"width", options.width},
      {"heads", options.heads},
      {"context", options.context},
      {"vocabulary", options.vocabulary}};
  for (const auto& [name, size] : sizes) {
    if (size >= 1) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("a GPT of ", name, " ", size, ": expected 1 or more"));
  }
  if (!(options.dropout >= 0 && options.dropout <= 1)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a GPT of dropout ", options.dropout, ": expected 0 to 1"));
  }
  if (options.width % options.heads == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "a GPT of width ", options.width, " and ", options.heads,
      " heads: each has a part of the width, so heads must divide it"));
}

}  // namespace

absl::StatusOr<LayerSpecs> Gpt(const GptOptions& options) {
  TANDEM_RETURN_IF_ERROR(Check(options));
  const InitialRule rule = GptInitialValues(options.layers);
  const GptLayerOptions of_layers = {options.document_masks, options.dropout};
  LayerSpecs specs = {TokenEmbeddingLayer("transformer.wte", options.vocabulary,
                                          options.width, rule),
                      GptPositionEmbedding("transformer.wpe", options.context,
                                           options.width, rule, of_layers)};
  for (int64_t i = 0; i < options.layers; ++i) {
    specs.push_back(GptBlock(absl::StrCat("transformer.h.", i), options.width,
                             options.heads, rule, of_layers));
  }
  specs.push_back(LayerNormLayer("transformer.ln_f", options.width));
  if (options.ties_lm_head) {
    specs.push_back(
        TiedLinearLayer("lm_head", specs.front(), "transformer.wte.weight"));
  } else {
    specs.push_back(
        LinearHeadLayer("lm_head", options.width, options.vocabulary, rule));
  }
  return specs;
}

LayerSpecs GptTiny() { return *Gpt(GptOptions()); }

GptOptions Gpt2Options() {
  GptOptions options;
  options.layers = 12;
  options.width = 768;
  options.heads = 12;
  options.context = 1024;
  options.vocabulary = 50257;
  options.ties_lm_head = true;
  return options;
}

}  // namespace tandem
