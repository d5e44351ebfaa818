// Token embedding, tied linear layer and linear head: a language model's first
// and last layers.

#ifndef TANDEM_MODELS_LAYERS_TOKEN_EMBEDDING_H_
#define TANDEM_MODELS_LAYERS_TOKEN_EMBEDDING_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/model/layer.h"
#include "models/layers/initialize.h"

namespace tandem {

// Inside a TensorParallelScope (core/model/axis/tensor_parallel.h) all of them
// are vocabulary-parallel (Megatron-LM, 1909.08053, section 3): rows of weights
// are divided over ranks, the first of which have one more where they must. The
// embedding gives what is outside of tensor-parallel regions, heads the logits
// of their rank's rows, of all tokens
// (models/tensor_parallel_loss.h). With sequence parallelism a number of tokens
// that the degree does not divide is refused by the embedding, as
// c10::ValueError.

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

// LinearLayer without a bias, for logits of a vocabulary.
// [n, tokens, width] -> [n, tokens, vocabulary]
LayerSpec LinearHeadLayer(const std::string& name, int64_t width,
                          int64_t vocabulary, const InitialRule& rule);

// A linear head is the last layer of a model, whose weight a loss takes in its
// stead. InvalidArgument where the last layer is not linear, or takes or leaves
// skips. `what` needs one: "a loss in chunks".
absl::Status CheckEndsInLinear(const LayerSpecs& specs, absl::string_view what);

// The parameter "weight" of a layer that has no other. Throws c10::ValueError
// where it has none, or others too. `takes`: who wants it, and what for.
at::Tensor OnlyWeight(const Layer& layer, absl::string_view takes);

}  // namespace tandem

#endif  // TANDEM_MODELS_LAYERS_TOKEN_EMBEDDING_H_
