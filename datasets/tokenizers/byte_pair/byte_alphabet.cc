#include "datasets/tokenizers/byte_pair/byte_alphabet.h"

#include <array>

#include "datasets/tokenizers/byte_pair/utf8.h"

namespace tandem {
namespace {

// Beyond the last character that stands for a byte.
constexpr uint32_t kEnd = 0x100 + 68;

bool CanBeSeen(uint32_t byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
}

struct Alphabet {
  std::array<uint32_t, 256> characters = {};
  std::array<int, kEnd> bytes = {};  // -1: no byte's

  Alphabet() {
    bytes.fill(-1);
    uint32_t next = 0x100;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      characters[byte] = CanBeSeen(byte) ? byte : next++;
      bytes[characters[byte]] = static_cast<int>(byte);
    }
  }
};

const Alphabet& TheAlphabet() {
  static const auto* const alphabet = new Alphabet;
  return *alphabet;
}

}  // namespace

std::string ByteCharacter(uint8_t byte) {
  std::string character;
  AppendUtf8(TheAlphabet().characters[byte], &character);
  return character;
}

std::optional<std::string> BytesOfWord(absl::string_view word) {
  std::string bytes;
  while (!word.empty()) {
    const Utf8Character character = FirstCharacter(word);
    if (!character.valid || character.code >= kEnd) return std::nullopt;
    const int byte = TheAlphabet().bytes[character.code];
    if (byte < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(byte));
    word.remove_prefix(character.bytes);
  }
  return bytes;
}

}  // namespace tandem
