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

// A control character beyond ASCII in UTF-8: 0xc2 and 0x80 to 0x9f.
bool IsC1(absl::string_view text) {
  if (text.size() < 2 || static_cast<uint8_t>(text[0]) != 0xc2) return false;
  const auto second = static_cast<uint8_t>(text[1]);
  return second >= 0x80 && second < 0xa0;
}

std::string Escaped(absl::string_view text, bool keeps_lines) {
  std::string printable;
  printable.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    if (IsC1(text.substr(i))) {
      AppendEscaped(byte, &printable);
      AppendEscaped(static_cast<uint8_t>(text[++i]), &printable);
    } else if ((byte < 0x20 || byte == kDelete) &&
               !(keeps_lines && byte == '\n')) {
      AppendEscaped(byte, &printable);
    } else {
      printable.push_back(text[i]);
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
