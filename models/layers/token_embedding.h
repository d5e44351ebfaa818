// Token embedding as a layer.
//
// Tied linear layer: its weight is another layer's.

#ifndef TANDEM_MODELS_LAYERS_TOKEN_EMBEDDING_H_
#define TANDEM_MODELS_LAYERS_TOKEN_EMBEDDING_H_

#include <cstdint>
#include <string>

#include "core/model/layer.h"
#include "models/layers/initialize.h"

namespace tandem {

// x [..., in] -> x weight^T [..., out]; no bias. `weight` [out, in] is
// parameter `tied_to`, by its full name, of the earlier layer `owner`. Made
// without that layer it has a weight of its own with the same initial values.
// Making it throws c10::Error where `owner` has no such parameter.
LayerSpec TiedLinearLayer(const std::string& name, const LayerSpec& owner,
                          const std::string& tied_to);

// nn.Embedding, for token numbers.
// int64 [n, tokens] -> [n, tokens, width]
LayerSpec TokenEmbeddingLayer(const std::string& name, int64_t vocabulary,
                              int64_t width, const InitialRule& rule);

}  // namespace tandem

#endif  // TANDEM_MODELS_LAYERS_TOKEN_EMBEDDING_H_
