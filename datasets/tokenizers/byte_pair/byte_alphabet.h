// GPT-2's alphabet for bytes: how files of byte-level vocabularies write them.

#ifndef TANDEM_DATASETS_TOKENIZERS_BYTE_PAIR_BYTE_ALPHABET_H_
#define TANDEM_DATASETS_TOKENIZERS_BYTE_PAIR_BYTE_ALPHABET_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace tandem {

// The character that stands for a byte, in UTF-8: the byte's own in Latin-1
// where that can be seen (! to ~, inverted exclamation mark to y with
// diaeresis, without the soft hyphen), else U+0100 and on, in the order of the
// bytes: a space is U+0120. GPT-2's bytes_to_unicode().
std::string ByteCharacter(uint8_t byte);

// The bytes that a word of that alphabet stands for. Nothing for a word with
// any other character.
std::optional<std::string> BytesOfWord(absl::string_view word);

}  // namespace tandem

#endif  // TANDEM_DATASETS_TOKENIZERS_BYTE_PAIR_BYTE_ALPHABET_H_
