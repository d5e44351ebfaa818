// Added tokens: those that a tokenizer finds in a text before all others, by
// their whole text.

#ifndef TANDEM_DATASETS_TOKENIZERS_BYTE_PAIR_ADDED_TOKENS_H_
#define TANDEM_DATASETS_TOKENIZERS_BYTE_PAIR_ADDED_TOKENS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace tandem {

struct AddedToken {
  std::string text;
  uint32_t id = 0;
  // <|endoftext|> and the like; else a word that was added to a vocabulary,
  // which any text may mean.
  bool special = false;
  // Found in the text as it has been normalized, after those that are not.
  bool normalized = false;
};

// A part of a text: one of the added tokens, or what lies between them.
struct TextPart {
  absl::string_view text;
  std::optional<uint32_t> id;
};

// Thread-safe.
class AddedTokens {
 public:
  // Requires that none is empty.
  explicit AddedTokens(std::vector<AddedToken> tokens);

  // The parts of `text`, none of them empty: of tokens that begin at the same
  // place the longest, from the left to the right. Without `with_special`,
  // special tokens are text like any other.
  std::vector<TextPart> Find(absl::string_view text, bool with_special) const;

  const std::vector<AddedToken>& tokens() const { return tokens_; }

 private:
  const AddedToken* TokenAtBeginning(absl::string_view text,
                                     bool with_special) const;

  std::vector<AddedToken> tokens_;
  // By the first byte: which tokens, the longest first.
  std::array<std::vector<size_t>, 256> by_byte_;
};

}  // namespace tandem

#endif  // TANDEM_DATASETS_TOKENIZERS_BYTE_PAIR_ADDED_TOKENS_H_
