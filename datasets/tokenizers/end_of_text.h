// End of text: the token at a text's end, as the files beside a tokenizer name
// it, or by its usual names.

#ifndef TANDEM_DATASETS_TOKENIZERS_END_OF_TEXT_H_
#define TANDEM_DATASETS_TOKENIZERS_END_OF_TEXT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "datasets/tokenizers/byte_pair_tokenizer.h"

namespace tandem {

// What is said beside a tokenizer.
struct SaidEndOfText {
  std::string text;              // eos_token of tokenizer_config.json
  std::vector<int64_t> numbers;  // eos_token_id of the model's configuration
};

// Beside the tokenizer's file `path` (FolderThatExplains):
// tokenizer_config.json, and generation_config.json before config.json. Where
// there is none, or it says nothing, there is nothing in it. InvalidArgument
// for a tokenizer_config.json that is no JSON object; what is wrong with the
// model's files is not for a tokenizer to say.
absl::StatusOr<SaidEndOfText> ReadSaidEndOfText(const std::string& path);

// What is said, the text before the numbers, where the tokenizer has it: among
// `added`, or `words`, which are by number. Else the special token that is
// called <|endoftext|>, <|end_of_text|>, </s> or <eos>, the first of them that
// there is.
std::optional<uint32_t> EndOfText(const SaidEndOfText& said,
                                  const std::vector<AddedToken>& added,
                                  const std::vector<std::string>& words);

}  // namespace tandem

#endif  // TANDEM_DATASETS_TOKENIZERS_END_OF_TEXT_H_
