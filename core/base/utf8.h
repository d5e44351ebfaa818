// UTF-8 (Unicode 15, chapter 3.9), and what stands for bytes that are not.

#ifndef TANDEM_CORE_BASE_UTF8_H_
#define TANDEM_CORE_BASE_UTF8_H_

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

}  // namespace tandem

#endif  // TANDEM_CORE_BASE_UTF8_H_
