// Embedding look-up whose gradient can be left for later
// (core/model/weight_gradient_sink.h).

#ifndef TANDEM_MODELS_FUNCTIONS_EMBEDDING_FUNCTION_H_
#define TANDEM_MODELS_FUNCTIONS_EMBEDDING_FUNCTION_H_

#include <ATen/core/Tensor.h>

namespace tandem {

// torch.nn.functional.embedding: int64 `indices` [...], weight [count, width]
// -> [..., width]. Values and gradients have its bits; without a sink it is
// what is called.
at::Tensor EmbeddingFunction(const at::Tensor& indices,
                             const at::Tensor& weight);

}  // namespace tandem

#endif  // TANDEM_MODELS_FUNCTIONS_EMBEDDING_FUNCTION_H_
