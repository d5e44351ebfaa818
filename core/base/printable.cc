#include "core/base/printable.h"

#include <cstddef>
#include <cstdint>

#include "absl/strings/str_cat.h"

namespace tandem {
namespace {

constexpr uint8_t kDelete = 0x7f;

void AppendEscaped(uint8_t byte, std::string* text) {
  switch (byte) {
    case '\n':
      absl::StrAppend(text, "\\n");
      break;
    case '\r':
      absl::StrAppend(text, "\\r");
      break;
    case '\t':
      absl::StrAppend(text, "\\t");
      break;
    default:
      absl::StrAppend(text, "\\x", absl::Hex(byte, absl::kZeroPad2));
  }
}

// How long the UTF-8 character is with which `text` begins; 0: it begins with
// none. (What is longer than it need be passes: no terminal obeys it.)
size_t LengthOfCharacter(absl::string_view text) {
  const auto first = static_cast<uint8_t>(text[0]);
  const size_t length = first < 0x80                    ? 1
                        : first >= 0xc2 && first < 0xe0 ? 2
                        : first >= 0xe0 && first < 0xf0 ? 3
                        : first >= 0xf0 && first < 0xf5 ? 4
                                                        : 0;
  if (length == 0 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((static_cast<uint8_t>(text[i]) & 0xc0) != 0x80) return 0;
  }
  return length;
}

// C0, DEL, and C1, which in UTF-8 is 0xc2 and 0x80 to 0x9f.
bool IsControl(absl::string_view character) {
  const auto first = static_cast<uint8_t>(character[0]);
  if (character.size() == 1) return first < 0x20 || first == kDelete;
  return first == 0xc2 && static_cast<uint8_t>(character[1]) < 0xa0;
}

std::string Escaped(absl::string_view text, bool keeps_lines) {
  std::string printable;
  printable.reserve(text.size());
  while (!text.empty()) {
    const size_t length = LengthOfCharacter(text);
    // A terminal of 8 bits takes a byte alone for a character.
    const absl::string_view next = text.substr(0, length == 0 ? 1 : length);
    text.remove_prefix(next.size());
    const bool is_plain = length > 0 && !IsControl(next);
    if (is_plain || (keeps_lines && next == "\n")) {
      absl::StrAppend(&printable, next);
      continue;
    }
    for (const char byte : next) {
      AppendEscaped(static_cast<uint8_t>(byte), &printable);
    }
  }
  return printable;
}

}  // namespace

std::string Printable(absl::string_view text) {
  return Escaped(text, /*keeps_lines=*/false);
}

std::string PrintableLines(absl::string_view text) {
  return Escaped(text, /*keeps_lines=*/true);
}

}  // namespace tandem
