// End tokens of a model: all that its files and its tokenizer call the end of a
// text.

#ifndef TANDEM_TOOLS_GENERATION_END_TOKENS_H_
#define TANDEM_TOOLS_GENERATION_END_TOKENS_H_

#include <cstdint>
#include <string>
#include <vector>

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

}  // namespace tandem

#endif  // TANDEM_TOOLS_GENERATION_END_TOKENS_H_
