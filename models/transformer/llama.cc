#include "models/transformer/llama.h"

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "models/layers/basic_layers.h"
#include "models/layers/llama/llama_block.h"
#include "models/layers/token_embedding.h"

namespace tandem {
namespace {

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
    specs.push_back(LinearLayer("lm_head", options.width, options.vocabulary,
                                /*bias=*/false, rule));
  }
  return specs;
}

}  // namespace tandem
