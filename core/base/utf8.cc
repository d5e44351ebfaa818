#include "core/base/utf8.h"

namespace tandem {
namespace {

constexpr uint32_t kReplacement = 0xFFFD;

uint8_t ByteAt(absl::string_view text, size_t place) {
  return static_cast<uint8_t>(text[place]);
}

// By a character's first byte: its length, and what its second byte may be
// (Unicode's table 3-7).
struct Lead {
  size_t bytes;
  uint8_t least;
  uint8_t most;
};

Lead LeadByte(uint8_t byte) {
  if (byte < 0xC2 || byte > 0xF4) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {4, 0x80, 0xBF};
}

size_t AsciiBytes(absl::string_view text) {
  size_t bytes = 0;
  while (bytes < text.size() && ByteAt(text, bytes) < 0x80) ++bytes;
  return bytes;
}

size_t ValidBytes(absl::string_view text) {
  size_t place = 0;
  while (true) {
    place += AsciiBytes(text.substr(place));
    if (place == text.size()) return place;
    const Utf8Character character = FirstCharacter(text.substr(place));
    if (!character.valid) return place;
    place += character.bytes;
  }
}

}  // namespace

Utf8Character FirstCharacter(absl::string_view text) {
  const uint8_t first = ByteAt(text, 0);
  if (first < 0x80) return {first, 1, true};
  const Lead lead = LeadByte(first);
  if (lead.bytes == 0) return {kReplacement, 1, false};
  uint32_t code = first & (0x7Fu >> lead.bytes);
  for (size_t i = 1; i < lead.bytes; ++i) {
    const uint8_t least = i == 1 ? lead.least : 0x80;
    const uint8_t most = i == 1 ? lead.most : 0xBF;
    if (i == text.size()) return {kReplacement, i, false};
    const uint8_t byte = ByteAt(text, i);
    if (byte < least || byte > most) return {kReplacement, i, false};
    code = code << 6 | (byte & 0x3Fu);
  }
  return {code, lead.bytes, true};
}

void AppendUtf8(uint32_t code, std::string* text) {
  const auto append = [&](uint32_t byte) {
    text->push_back(static_cast<char>(byte));
  };
  if (code < 0x80) return append(code);
  if (code < 0x800) {
    append(0xC0 | code >> 6);
  } else {
    if (code < 0x10000) {
      append(0xE0 | code >> 12);
    } else {
      append(0xF0 | code >> 18);
      append(0x80 | (code >> 12 & 0x3F));
    }
    append(0x80 | (code >> 6 & 0x3F));
  }
  append(0x80 | (code & 0x3F));
}

bool IsUtf8(absl::string_view text) { return ValidBytes(text) == text.size(); }

bool MayBeInUtf8(uint8_t byte) {
  return byte != 0xC0 && byte != 0xC1 && byte <= 0xF4;
}

std::string ReplaceInvalidUtf8(absl::string_view text) {
  std::string replaced;
  replaced.reserve(text.size());
  while (true) {
    const size_t valid = ValidBytes(text);
    replaced.append(text.data(), valid);
    text.remove_prefix(valid);
    if (text.empty()) return replaced;
    AppendUtf8(kReplacement, &replaced);
    text.remove_prefix(FirstCharacter(text).bytes);
  }
}

}  // namespace tandem
