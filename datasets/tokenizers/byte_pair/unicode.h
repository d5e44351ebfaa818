// Unicode text: UTF-8 (Unicode 15, chapter 3.9), what stands for bytes that are
// not, and normalization form C (NFC; UAX #15).

#ifndef TANDEM_DATASETS_TOKENIZERS_BYTE_PAIR_UNICODE_H_
#define TANDEM_DATASETS_TOKENIZERS_BYTE_PAIR_UNICODE_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace tandem {

// The character (code point) that `text` begins with, and its bytes. Where none
// is, U+FFFD and the bytes that it stands for (Unicode's "maximal subpart" of a
// character, as Python and browsers replace it). Requires a text that is not
// empty.
struct Utf8Character {
  uint32_t code = 0;
  size_t bytes = 1;
  bool valid = true;
};
Utf8Character FirstCharacter(absl::string_view text);

// The character's bytes. Requires a code point.
void AppendUtf8(uint32_t code, std::string* text);

bool IsUtf8(absl::string_view text);

// Whether a text in UTF-8 can have this byte: all but C0, C1 and F5 to FF.
bool MayBeInUtf8(uint8_t byte);

// What Python's bytes.decode(errors="replace") gives: U+FFFD for what is no
// UTF-8.
std::string ReplaceInvalidUtf8(absl::string_view text);

// `text` in NFC, in which a letter and the marks upon it are one character
// wherever there is one, by Unicode 14: Python's unicodedata.normalize("NFC",
// text). Requires UTF-8.
std::string Nfc(absl::string_view text);

// Unicode's data that NFC needs, packed.
//
// Written by make_nfc_data.py: for each character with a canonical
// decomposition its distance from the one before, the first character of what
// it becomes, and twice the second one (0: there is none), plus 1 where NFC
// puts them together again. Hangul is left out, which goes by arithmetic.
extern const char kNfcDecompositions[];

// For characters in a row with the same combining class, other than 0, their
// distance from the last one before, how many there are beside the first, and
// the class.
extern const char kNfcClasses[];

}  // namespace tandem

#endif  // TANDEM_DATASETS_TOKENIZERS_BYTE_PAIR_UNICODE_H_
