// Llama blocks: attention with rotary positions and grouped queries, SwiGLU.
//
// RMSNorm over the last dimension, as a module and as a layer.

#ifndef TANDEM_MODELS_LAYERS_LLAMA_LLAMA_BLOCK_H_
#define TANDEM_MODELS_LAYERS_LLAMA_LLAMA_BLOCK_H_

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/model/layer.h"
#include "models/layers/initialize.h"

namespace tandem {

// torch.nn.RMSNorm(width, eps). Runs under a WeightGradientSink.
class RmsNorm : public torch::nn::Module {
 public:
  RmsNorm(int64_t width, double eps);
  at::Tensor forward(const at::Tensor& x) const;

 private:
  at::Tensor weight_;
  double eps_;
};

// [..., width] -> [..., width]
LayerSpec RmsNormLayer(const std::string& name, int64_t width, double eps,
                       const InitialRule& rule);

// Hugging Face's initial values: matrices from N(0, stddev), biases 0, RMSNorm
// 1.
InitialRule LlamaInitialValues(double stddev);

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

// x + self_attn(input_layernorm(x)), then x +
// mlp(post_attention_layernorm(x)); attention is causal. State names:
// input_layernorm.*, self_attn.{q,k,v,o}_proj.*, post_attention_layernorm.*,
// mlp.{gate,up,down}_proj.*. [n, tokens, width] -> [n, tokens, width]. Making
// it throws c10::ValueError for heads, kv_heads and frequencies that do not
// fit. With `document_masks` it reads where documents begin
// (core/model/batch.h): attention keeps within them, and positions begin
// anew with each.
LayerSpec LlamaBlock(const std::string& name, const LlamaBlockShape& shape,
                     const InitialRule& rule);

}  // namespace tandem

#endif  // TANDEM_MODELS_LAYERS_LLAMA_LLAMA_BLOCK_H_
