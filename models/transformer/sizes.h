// Sizes of published transformers by name: gpt2-xl, llama-3.2-1b.

#ifndef TANDEM_MODELS_TRANSFORMER_SIZES_H_
#define TANDEM_MODELS_TRANSFORMER_SIZES_H_

#include <cstdint>
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
// (2407.21783), llama-3.2-1b, llama-3.2-3b; llama_baby, as deep and as wide as
// gpt_baby; and llama_tiny, llama_tiny_tied to test with. Nothing for another
// name.
std::optional<LlamaOptions> LlamaSize(absl::string_view name);

// Instead of a named transformer's own sizes; 0: its own.
struct TransformerSizes {
  int64_t layers = 0;
  int64_t width = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;   // Llamas' alone
  int64_t ffn_width = 0;  // Llamas' alone

  bool any() const {
    return layers != 0 || width != 0 || heads != 0 || kv_heads != 0 ||
           ffn_width != 0;
  }
};

// `model` with those of the sizes that are given and that it has.
GptOptions WithSizes(GptOptions model, const TransformerSizes& sizes);
LlamaOptions WithSizes(LlamaOptions model, const TransformerSizes& sizes);

// In alphabetical order.
std::vector<std::string> GptSizes();
std::vector<std::string> LlamaSizes();

}  // namespace tandem

#endif  // TANDEM_MODELS_TRANSFORMER_SIZES_H_
