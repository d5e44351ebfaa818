// Sizes of published transformers by name: gpt2-xl, llama-3.2-1b.

#ifndef TANDEM_MODELS_TRANSFORMER_SIZES_H_
#define TANDEM_MODELS_TRANSFORMER_SIZES_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "models/transformer/gpt.h"
#include "models/transformer/llama.h"

namespace tandem {

// gpt2, gpt2-medium, gpt2-large, gpt2-xl (Radford et al., 2019);
// gpt_baby, nanoGPT's baby GPT of 10.9 million parameters, for texts in bytes;
// and gpt_tiny, gpt_tiny_tied to test with. Nothing for another name.
std::optional<GptOptions> GptSize(absl::string_view name);

// tinyllama (2401.02385), llama-2-7b (2307.09288), llama-3-8b, llama-3-70b
// (2407.21783), llama-3.2-1b, llama-3.2-3b; and llama_tiny, llama_tiny_tied to
// test with. Nothing for another name.
std::optional<LlamaOptions> LlamaSize(absl::string_view name);

// In alphabetical order.
std::vector<std::string> GptSizes();
std::vector<std::string> LlamaSizes();

}  // namespace tandem

#endif  // TANDEM_MODELS_TRANSFORMER_SIZES_H_
