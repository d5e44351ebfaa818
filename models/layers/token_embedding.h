// Token embedding as a layer.

#ifndef TANDEM_MODELS_LAYERS_TOKEN_EMBEDDING_H_
#define TANDEM_MODELS_LAYERS_TOKEN_EMBEDDING_H_

#include <cstdint>
#include <string>

#include "core/model/layer.h"
#include "models/layers/initialize.h"

namespace tandem {

// nn.Embedding, for token numbers.
// int64 [n, tokens] -> [n, tokens, width]
LayerSpec TokenEmbeddingLayer(const std::string& name, int64_t vocabulary,
                              int64_t width, const InitialRule& rule);

}  // namespace tandem

#endif  // TANDEM_MODELS_LAYERS_TOKEN_EMBEDDING_H_
