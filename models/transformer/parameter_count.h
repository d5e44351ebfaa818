// Parameter count of a transformer, by arithmetic: nothing is made.

#ifndef TANDEM_MODELS_TRANSFORMER_PARAMETER_COUNT_H_
#define TANDEM_MODELS_TRANSFORMER_PARAMETER_COUNT_H_

#include <cstdint>

#include "models/transformer/gpt.h"
#include "models/transformer/llama.h"
#include "models/transformer/vit.h"

namespace tandem {

// Elements of all parameters, a tied one once, as PyTorch's
// sum(p.numel() for p in model.parameters()).
int64_t ParameterCount(const GptOptions& options);
int64_t ParameterCount(const LlamaOptions& options);
int64_t ParameterCount(const VitOptions& options);

// Of one of its blocks: of products, with their biases, and of norms.
struct BlockParameters {
  int64_t products = 0;
  int64_t norms = 0;

  int64_t all() const { return products + norms; }
};
BlockParameters ParametersOfBlock(const GptOptions& options);
BlockParameters ParametersOfBlock(const LlamaOptions& options);

}  // namespace tandem

#endif  // TANDEM_MODELS_TRANSFORMER_PARAMETER_COUNT_H_
