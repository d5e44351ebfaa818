// Llama (Touvron et al., 2302.13971 and 2307.09288; Llama 3, 2407.21783):
// pre-RMSNorm transformer blocks, rotary positions, SwiGLU, grouped-query
// attention, no biases. State names and shapes are those of Hugging Face's
// LlamaForCausalLM, so that checkpoints can be exchanged; a tied
// lm_head.weight is model.embed_tokens.weight.
//
// int64 token numbers [n, tokens], tokens <= context -> logits [n, tokens,
// vocabulary]. Layers: model.embed_tokens, model.layers.0 ..., model.norm,
// lm_head.
//
// Made in a TensorParallelScope (core/model/axis/tensor_parallel.h) they are
// divided as a GPT's are (models/transformer/gpt.h), attention by key-value
// heads, too; where the degree is a multiple of these, each is on several
// ranks, all of which keep k_proj and v_proj whole. A degree that does not
// divide the inner width of MLPs is refused, too.

#ifndef TANDEM_MODELS_TRANSFORMER_LLAMA_H_
#define TANDEM_MODELS_TRANSFORMER_LLAMA_H_

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "core/model/layer.h"
#include "models/transformer/rotary.h"

namespace tandem {

// Behind each: its name in Hugging Face's config.json.
struct LlamaOptions {
  int64_t layers = 2;        // num_hidden_layers
  int64_t width = 64;        // hidden_size
  int64_t ffn_width = 176;   // intermediate_size
  int64_t heads = 4;         // num_attention_heads
  int64_t kv_heads = 2;      // num_key_value_heads; divides `heads`
  int64_t head_dim = 0;      // head_dim; even; 0: width / heads
  int64_t vocabulary = 256;  // vocab_size
  int64_t context = 128;     // max_position_embeddings
  double rope_theta = 10000;
  std::optional<Llama3RopeScaling> rope_scaling = {};  // rope_type "llama3"
  double rms_eps = 1e-5;                               // rms_norm_eps
  double initial_stddev = 0.02;                        // initializer_range
  bool ties_lm_head = false;                           // tie_word_embeddings
  bool attention_bias = false;  // of q_proj, k_proj, v_proj and o_proj
  bool mlp_bias = false;        // of gate_proj, up_proj and down_proj
  // None of config.json's: as GptOptions has it.
  bool document_masks = false;
};

// options.head_dim, or what 0 stands for. Requires heads >= 1.
int64_t HeadDim(const LlamaOptions& options);

// Initial values are Hugging Face's: weights and embeddings N(0,
// initial_stddev), biases 0, RMSNorm 1. InvalidArgument for sizes below 1, an
// odd head_dim, heads that do not divide the width where head_dim is 0, and
// kv_heads that do not divide the heads.
absl::StatusOr<LayerSpecs> Llama(const LlamaOptions& options);

}  // namespace tandem

#endif  // TANDEM_MODELS_TRANSFORMER_LLAMA_H_
