// Tokens of a model: which of them end a text, and whether they can be a
// tokenizer's.

#ifndef TANDEM_TOOLS_GENERATION_MODEL_TOKENS_H_
#define TANDEM_TOOLS_GENERATION_MODEL_TOKENS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "datasets/tokenizers/tokenizer.h"

namespace tandem {

// The end tokens of `config`, its config.json, and `generation_config`, either
// of which may be empty, and of `tokenizer`, which may be null: the ones below
// `vocabulary`, each once. InvalidArgument, naming the file, for an
// "eos_token_id" that is none.
absl::StatusOr<std::vector<int64_t>> AllEndTokens(
    const std::string& config, const std::string& generation_config,
    const Tokenizer* tokenizer, int64_t vocabulary);

// Vocabularies of a model and of its tokenizer are seldom of the same size:
// models are padded to a multiple of 64 or 128 (GPT-2's 50257 tokens to 50304,
// Phi-2's 50295 to 51200), and tokens that were added later have no place in
// some. So a tokenizer may have a twentieth of the tokens less than the model,
// or 128, and as much more, or 256; of the ones more its end of a text does not
// count, where it is the last. InvalidArgument, with both sizes, for another
// one: what the model says would be read as something else.
//
// `texts`: how many tokens the model's texts had, where that is known; 0: as
// many as the model.
absl::Status CheckTokenizerFits(const Tokenizer& tokenizer, int64_t model,
                                int64_t texts);

}  // namespace tandem

#endif  // TANDEM_TOOLS_GENERATION_MODEL_TOKENS_H_
