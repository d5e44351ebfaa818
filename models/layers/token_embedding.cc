#include "models/layers/token_embedding.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/nn/module.h>

#include <memory>

#include "models/functions/embedding_function.h"
#include "models/layers/module_layer.h"

namespace tandem {
namespace {

class TokenEmbedding : public torch::nn::Module {
 public:
  TokenEmbedding(int64_t vocabulary, int64_t width)
      : weight_(register_parameter("weight", at::empty({vocabulary, width}))) {}

  at::Tensor forward(const at::Tensor& tokens) const {
    return EmbeddingFunction(tokens, weight_);
  }

 private:
  at::Tensor weight_;
};

}  // namespace

LayerSpec TokenEmbeddingLayer(const std::string& name, int64_t vocabulary,
                              int64_t width, const InitialRule& rule) {
  return ModuleLayer<TokenEmbedding>(
      name, "Embedding",
      [=] { return std::make_shared<TokenEmbedding>(vocabulary, width); },
      rule);
}

}  // namespace tandem
