// GPT-2 (Radford et al., "Language Models are Unsupervised Multitask Learners",
// 2019): pre-LayerNorm transformer blocks, tanh-GELU, learned positions. State
// names and shapes are Hugging Face's, c_attn, c_proj and c_fc stored as [in,
// out], so that checkpoints can be exchanged; lm_head.weight is a parameter of
// its own here unless it is to be tied to transformer.wte.weight, as GPT-2's
// is.
//
// int64 token numbers [n, tokens], tokens <= context -> logits [n, tokens,
// vocabulary]. Layers: transformer.wte (of the token), transformer.wpe (of its
// position), transformer.h.0 ..., transformer.ln_f, lm_head.
//
// Made in a TensorParallelScope (core/model/axis/tensor_parallel.h) attention
// is divided by heads, MLPs by their inner width, embedding and head by the
// vocabulary (models/layers/token_embedding.h). A degree that does not divide
// the heads is refused by c10::ValueError where layers are made, and with
// sequence parallelism numbers of tokens that it does not divide, where they
// are run.

#ifndef TANDEM_MODELS_TRANSFORMER_GPT_H_
#define TANDEM_MODELS_TRANSFORMER_GPT_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/model/layer.h"
#include "models/layers/initialize.h"

namespace tandem {

struct GptOptions {
  int64_t layers = 4;
  int64_t width = 128;
  int64_t heads = 4;  // divides `width`
  int64_t context = 128;
  int64_t vocabulary = 256;
  bool ties_lm_head = false;  // lm_head.weight is transformer.wte.weight
  // Samples are documents side by side, and a batch says where they begin
  // (core/model/batch.h).
  bool document_masks = false;
  // In training, where GPT-2 has it (GptLayerOptions). 0.1 is its.
  double dropout = 0;
};

// Initial values are GPT-2's: weights and embeddings N(0, 0.02), those of the
// projections onto the residual stream N(0, 0.02 / sqrt(2 x layers)); biases 0;
// LayerNorm 1 and 0. InvalidArgument for sizes below 1, for heads that do not
// divide the width, and for a dropout that is not from 0 to 1.
absl::StatusOr<LayerSpecs> Gpt(const GptOptions& options);

// 4 layers, width 128, 4 heads, context 128, vocabulary 256.
LayerSpecs GptTiny();

// GPT-2's smallest, of 124 million parameters: 12 layers, width 768, 12 heads,
// context 1024, vocabulary 50257, a tied lm_head.
GptOptions Gpt2Options();

// DocumentAttentionFunction(qkv, heads, begins), where each probability is 0
// with probability p, else multiplied by 1 / (1 - p): by SampleDropout
// (models/layers/dropout.h) of that name. No kernel does so with draws that are
// a function of the sample, so all [n, heads, tokens, tokens] of them are in
// memory. The heads are those from `first_head` on of more.
at::Tensor DroppedAttention(const at::Tensor& qkv, int64_t heads,
                            const at::Tensor& begins, double p,
                            absl::string_view name, int64_t first_head = 0);

// GPT-2's initial values for a model of so many blocks.
InitialRule GptInitialValues(int64_t blocks);

struct GptLayerOptions {
  // The layer reads where documents begin (core/model/batch.h): positions
  // begin anew with each, and attention keeps within them.
  bool document_masks = false;
  // In training: of what the position embedding gives, of attention's
  // probabilities, and of what is added to the residual stream (embd_pdrop,
  // attn_pdrop, resid_pdrop), with draws that are a function of the sample
  // (models/layers/dropout.h). From 0 to 1, else making the layer throws
  // c10::ValueError.
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

#endif  // TANDEM_MODELS_TRANSFORMER_GPT_H_
