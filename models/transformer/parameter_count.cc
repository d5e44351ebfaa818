#include "models/transformer/parameter_count.h"

namespace tandem {
namespace {

int64_t Linear(int64_t in_features, int64_t out_features, bool bias = true) {
  return in_features * out_features + (bias ? out_features : 0);
}

int64_t LayerNorm(int64_t width) { return 2 * width; }

// With attention of as many heads of keys as of queries, and an MLP.
BlockParameters EncoderBlock(int64_t width, int64_t ffn_width) {
  return {Linear(width, 3 * width) + Linear(width, width) +
              Linear(width, ffn_width) + Linear(ffn_width, width),
          2 * LayerNorm(width)};
}

}  // namespace

BlockParameters ParametersOfBlock(const GptOptions& options) {
  return EncoderBlock(options.width, 4 * options.width);
}

BlockParameters ParametersOfBlock(const LlamaOptions& options) {
  const int64_t width = options.width;
  const int64_t q_width = options.heads * HeadDim(options);
  const int64_t kv_width = options.kv_heads * HeadDim(options);
  const bool attention_bias = options.attention_bias;
  const int64_t attention = Linear(width, q_width, attention_bias) +
                            2 * Linear(width, kv_width, attention_bias) +
                            Linear(q_width, width, attention_bias);
  const int64_t mlp = 2 * Linear(width, options.ffn_width, options.mlp_bias) +
                      Linear(options.ffn_width, width, options.mlp_bias);
  return {attention + mlp, 2 * width};
}

int64_t ParameterCount(const GptOptions& options) {
  const int64_t embedding = options.vocabulary * options.width;
  return embedding + options.context * options.width +
         options.layers * ParametersOfBlock(options).all() +
         LayerNorm(options.width) + (options.ties_lm_head ? 0 : embedding);
}

int64_t ParameterCount(const LlamaOptions& options) {
  const int64_t embedding = options.vocabulary * options.width;
  return embedding + options.layers * ParametersOfBlock(options).all() +
         options.width + (options.ties_lm_head ? 0 : embedding);
}

int64_t ParameterCount(const VitOptions& options) {
  const int64_t width = options.width;
  const int64_t side = options.image_size / options.patch_size;
  const int64_t pixels =
      options.in_channels * options.patch_size * options.patch_size;
  return Linear(pixels, width) + width + (side * side + 1) * width +
         options.layers * EncoderBlock(width, options.ffn_width).all() +
         LayerNorm(width) + Linear(width, options.classes);
}

}  // namespace tandem
