// Parameter count of a transformer, by arithmetic: nothing is made.

#ifndef TANDEM_MODELS_TRANSFORMER_PARAMETER_COUNT_H_
#define TANDEM_MODELS_TRANSFORMER_PARAMETER_COUNT_H_

#include <cstdint>

#include "models/gpt.h"
#include "models/transformer/llama.h"

namespace tandem {

// Elements of all parameters, a tied one once, as PyTorch's
// sum(p.numel() for p in model.parameters()).
int64_t ParameterCount(const GptOptions& options);
int64_t ParameterCount(const LlamaOptions& options);

}  // namespace tandem

#endif  // TANDEM_MODELS_TRANSFORMER_PARAMETER_COUNT_H_
