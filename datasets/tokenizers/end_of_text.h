// The token at the end of a text, by its usual names.

#ifndef TANDEM_DATASETS_TOKENIZERS_END_OF_TEXT_H_
#define TANDEM_DATASETS_TOKENIZERS_END_OF_TEXT_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "datasets/tokenizers/byte_pair/added_tokens.h"

namespace tandem {

// The special token that is called <|endoftext|>, <|end_of_text|>, </s> or
// <eos>, the first of them that there is.
inline std::optional<uint32_t> UsualEndOfText(
    const std::vector<AddedToken>& added) {
  for (const char* const name :
       {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"}) {
    for (const AddedToken& token : added) {
      if (token.special && token.text == name) return token.id;
    }
  }
  return std::nullopt;
}

}  // namespace tandem

#endif  // TANDEM_DATASETS_TOKENIZERS_END_OF_TEXT_H_
