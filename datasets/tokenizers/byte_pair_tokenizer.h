// Byte-level BPE tokenizer: GPT-2's kind, also Llama 3's.

#ifndef TANDEM_DATASETS_TOKENIZERS_BYTE_PAIR_TOKENIZER_H_
#define TANDEM_DATASETS_TOKENIZERS_BYTE_PAIR_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "datasets/tokenizers/byte_pair/encoding.h"
#include "datasets/tokenizers/byte_pair/splitter.h"
#include "datasets/tokenizers/tokenizer.h"

namespace tandem {

// Added tokens: those that a tokenizer finds in a text before all others, by
// their whole text.
struct AddedToken {
  std::string text;
  uint32_t id = 0;
  // <|endoftext|> and the like; else a word that was added to a vocabulary,
  // which any text may mean.
  bool special = false;
  // Found in the text as it has been normalized, after those that are not.
  bool normalized = false;
};

// What such a tokenizer is made of, whatever file says it.
struct BytePairParts {
  Vocabulary vocabulary;
  // Whether a piece that is a word is that token, whatever the merges say.
  bool whole_words = false;
  bool nfc = false;                 // whether texts are brought to it
  std::vector<Splitter> splitters;  // one after the other
  // Whether a text that begins with no space gets one.
  bool space_first = false;
  std::vector<AddedToken> added;  // their numbers may be words' or others
  std::optional<uint32_t> end_of_text;
  std::vector<uint32_t> prefix;
  std::vector<uint32_t> suffix;
};

// Encode: bytes that are no UTF-8 become U+FFFD first, as in Python's
// bytes.decode(errors="replace"), for Python's tokenizers take text. Then come
// added tokens that are not normalized, NFC, the other added tokens, then
// splitters, then merges. InvalidArgument, naming it, for a character with a
// byte that has no token. Tokens of short pieces are remembered, a few
// megabytes of them; for that calls of Encode wait for each other.
std::unique_ptr<Tokenizer> MakeBytePairTokenizer(BytePairParts parts);

}  // namespace tandem

#endif  // TANDEM_DATASETS_TOKENIZERS_BYTE_PAIR_TOKENIZER_H_
