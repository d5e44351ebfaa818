// NFC: Unicode's normalization form C (UAX #15), in which a letter and the
// marks upon it are one character wherever there is one.

#ifndef TANDEM_DATASETS_TOKENIZERS_BYTE_PAIR_NFC_H_
#define TANDEM_DATASETS_TOKENIZERS_BYTE_PAIR_NFC_H_

#include <string>

#include "absl/strings/string_view.h"

namespace tandem {

// `text` in NFC, by Unicode 14: Python's unicodedata.normalize("NFC", text).
// Requires UTF-8.
std::string Nfc(absl::string_view text);

}  // namespace tandem

#endif  // TANDEM_DATASETS_TOKENIZERS_BYTE_PAIR_NFC_H_
