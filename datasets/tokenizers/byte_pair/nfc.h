// Normalization form C of Unicode text (NFC; UAX #15).

#ifndef TANDEM_DATASETS_TOKENIZERS_BYTE_PAIR_NFC_H_
#define TANDEM_DATASETS_TOKENIZERS_BYTE_PAIR_NFC_H_

#include <string>

#include "absl/strings/string_view.h"

namespace tandem {

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

#endif  // TANDEM_DATASETS_TOKENIZERS_BYTE_PAIR_NFC_H_
