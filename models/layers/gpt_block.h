// GPT-2 blocks: the layers that only GPT-2 has.
//
// Causal self-attention with dropout of its probabilities (GPT-2's attn_pdrop).

#ifndef TANDEM_MODELS_LAYERS_GPT_BLOCK_H_
#define TANDEM_MODELS_LAYERS_GPT_BLOCK_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "core/model/layer.h"
#include "models/layers/initialize.h"

namespace tandem {

// DocumentAttentionFunction(qkv, heads, begins), where each probability is 0
// with probability p, else multiplied by 1 / (1 - p): by SampleDropout
// (dropout.h) of that name. No kernel does so with draws that are a function of
// the sample, so all [n, heads, tokens, tokens] of them are in memory.
at::Tensor DroppedAttention(const at::Tensor& qkv, int64_t heads,
                            const at::Tensor& begins, double p,
                            absl::string_view name);

// GPT-2's initial values for a model of so many blocks (see gpt.h).
InitialRule GptInitialValues(int64_t blocks);

struct GptLayerOptions {
  // The layer reads where documents begin (core/model/batch.h): positions
  // begin anew with each, and attention keeps within them.
  bool document_masks = false;
  // In training: of what the position embedding gives, of attention's
  // probabilities, and of what is added to the residual stream (embd_pdrop,
  // attn_pdrop, resid_pdrop), with draws that are a function of the sample
  // (dropout.h). From 0 to 1, else making the layer throws c10::ValueError.
  double dropout = 0;
};

// Adds to each token the embedding of its position.
// [n, tokens, width], tokens <= context -> [n, tokens, width]
LayerSpec GptPositionEmbedding(const std::string& name, int64_t context,
                               int64_t width, const InitialRule& rule,
                               const GptLayerOptions& options = {});

// x + attn(ln_1(x)), then x + mlp(ln_2(x)); attention is causal. State names:
// ln_1.*, attn.c_attn.*, attn.c_proj.*, ln_2.*, mlp.c_fc.*, mlp.c_proj.*.
// [n, tokens, width] -> [n, tokens, width]. Making it throws c10::ValueError
// where heads do not divide the width.
LayerSpec GptBlock(const std::string& name, int64_t width, int64_t heads,
                   const InitialRule& rule,
                   const GptLayerOptions& options = {});

}  // namespace tandem

#endif  // TANDEM_MODELS_LAYERS_GPT_BLOCK_H_
