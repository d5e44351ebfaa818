#include "datasets/tokenizers/byte_pair/nfc.h"

#include <glog/logging.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/escaping.h"
#include "core/base/utf8.h"

namespace tandem {
namespace {

// Beyond the last character that has a decomposition or a class.
constexpr uint32_t kEndOfCodes = 0x30000;

// Hangul's syllables (Unicode 14, chapter 3.12): a leading consonant, a vowel,
// and maybe a trailing consonant.
constexpr uint32_t kSyllables = 0xAC00;
constexpr uint32_t kLeading = 0x1100;
constexpr uint32_t kVowels = 0x1161;
constexpr uint32_t kTrailing = 0x11A7;  // itself: none
constexpr uint32_t kLeadingCount = 19;
constexpr uint32_t kVowelCount = 21;
constexpr uint32_t kTrailingCount = 28;
constexpr uint32_t kSyllableCount =
    kLeadingCount * kVowelCount * kTrailingCount;

class PackedNumbers {
 public:
  explicit PackedNumbers(const char* base64) {
    CHECK(absl::Base64Unescape(base64, &bytes_));
  }

  bool empty() const { return at_ == bytes_.size(); }

  uint32_t Next() {
    uint32_t number = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<uint8_t>(bytes_[at_++]);
      number |= (byte & 127u) << shift;
      if (byte < 128) return number;
    }
  }

 private:
  std::string bytes_;
  size_t at_ = 0;
};

uint64_t CodePair(uint32_t first, uint32_t second) {
  return uint64_t{first} << 32 | second;
}

// What Unicode says of characters.
class Characters {
 public:
  Characters() : moves_(kEndOfCodes) {
    ReadDecompositions();
    ReadClasses();
    for (uint32_t i = 0; i < kVowelCount; ++i) moves_[kVowels + i] = true;
    for (uint32_t i = 1; i < kTrailingCount; ++i) moves_[kTrailing + i] = true;
  }

  // Whether NFC may put it together with what stands before it, move it past
  // that, or replace it.
  bool Moves(uint32_t code) const { return code < kEndOfCodes && moves_[code]; }

  int CombiningClass(uint32_t code) const {
    const auto found = classes_.find(code);
    return found == classes_.end() ? 0 : found->second;
  }

  // Appends what it becomes at last.
  void Decompose(uint32_t code, std::vector<uint32_t>* codes) const {
    const uint32_t syllable = code - kSyllables;
    if (syllable < kSyllableCount) {
      codes->push_back(kLeading + syllable / (kVowelCount * kTrailingCount));
      codes->push_back(kVowels + syllable / kTrailingCount % kVowelCount);
      const uint32_t trailing = syllable % kTrailingCount;
      if (trailing > 0) codes->push_back(kTrailing + trailing);
      return;
    }
    const auto found = decompositions_.find(code);
    if (found == decompositions_.end()) return codes->push_back(code);
    const auto [first, second] = found->second;
    Decompose(first, codes);
    if (second != 0) Decompose(second, codes);
  }

  std::optional<uint32_t> Composed(uint32_t first, uint32_t second) const {
    const uint32_t leading = first - kLeading;
    const uint32_t vowel = second - kVowels;
    if (leading < kLeadingCount && vowel < kVowelCount) {
      return kSyllables + (leading * kVowelCount + vowel) * kTrailingCount;
    }
    const uint32_t syllable = first - kSyllables;
    const uint32_t trailing = second - kTrailing;
    if (syllable < kSyllableCount && syllable % kTrailingCount == 0 &&
        trailing > 0 && trailing < kTrailingCount) {
      return first + trailing;
    }
    const auto found = compositions_.find(CodePair(first, second));
    if (found == compositions_.end()) return std::nullopt;
    return found->second;
  }

 private:
  void ReadDecompositions() {
    uint32_t code = 0;
    for (PackedNumbers numbers(kNfcDecompositions); !numbers.empty();) {
      code += numbers.Next();
      const uint32_t first = numbers.Next();
      const uint32_t rest = numbers.Next();
      const uint32_t second = rest / 2;
      decompositions_[code] = {first, second};
      if (rest % 2 == 0) {
        moves_[code] = true;
      } else {
        compositions_[CodePair(first, second)] = code;
        moves_[second] = true;
      }
    }
  }

  void ReadClasses() {
    uint32_t code = 0;
    for (PackedNumbers numbers(kNfcClasses); !numbers.empty();) {
      code += numbers.Next();
      const uint32_t last = code + numbers.Next();
      const auto combining_class = static_cast<uint8_t>(numbers.Next());
      for (;; ++code) {
        classes_[code] = combining_class;
        moves_[code] = true;
        if (code == last) break;
      }
    }
  }

  std::vector<bool> moves_;
  absl::flat_hash_map<uint32_t, uint8_t> classes_;
  absl::flat_hash_map<uint32_t, std::pair<uint32_t, uint32_t>> decompositions_;
  absl::flat_hash_map<uint64_t, uint32_t> compositions_;
};

const Characters& TheCharacters() {
  static const auto* const characters = new Characters;
  return *characters;
}

// Marks upon the same letter in the order of their classes.
void Order(const Characters& characters, std::vector<uint32_t>* codes) {
  const auto is_letter = [&](uint32_t code) {
    return characters.CombiningClass(code) == 0;
  };
  auto begin = codes->begin();
  while (begin != codes->end()) {
    begin = std::find_if_not(begin, codes->end(), is_letter);
    const auto end = std::find_if(begin, codes->end(), is_letter);
    std::stable_sort(begin, end, [&](uint32_t a, uint32_t b) {
      return characters.CombiningClass(a) < characters.CombiningClass(b);
    });
    begin = end;
  }
}

std::vector<uint32_t> Compose(const Characters& characters,
                              const std::vector<uint32_t>& codes) {
  std::vector<uint32_t> composed;
  std::optional<size_t> letter;  // the last one
  int between = -1;              // class of what stands behind it
  for (const uint32_t code : codes) {
    const int combining_class = characters.CombiningClass(code);
    if (letter && between < combining_class) {
      const auto both = characters.Composed(composed[*letter], code);
      if (both) {
        composed[*letter] = *both;
        continue;
      }
    }
    if (combining_class == 0) letter = composed.size();
    between = combining_class == 0 ? -1 : combining_class;
    composed.push_back(code);
  }
  return composed;
}

void AppendNfc(const Characters& characters, absl::string_view part,
               std::string* text) {
  std::vector<uint32_t> codes;
  while (!part.empty()) {
    const Utf8Character character = FirstCharacter(part);
    characters.Decompose(character.code, &codes);
    part.remove_prefix(character.bytes);
  }
  Order(characters, &codes);
  for (const uint32_t code : Compose(characters, codes)) {
    AppendUtf8(code, text);
  }
}

}  // namespace

// What moves is put together with the character before it that does not: what
// stands before that one has nothing to do with it (UAX #15, 9.1).
std::string Nfc(absl::string_view text) {
  const Characters& characters = TheCharacters();
  std::string normal;
  normal.reserve(text.size());
  size_t done = 0;    // bytes that are in `normal`
  size_t letter = 0;  // the last character that does not move
  size_t at = 0;
  const auto next_moves = [&] {
    return characters.Moves(FirstCharacter(text.substr(at)).code);
  };
  while (at < text.size()) {
    if (!next_moves()) {
      letter = at;
      at += FirstCharacter(text.substr(at)).bytes;
      continue;
    }
    while (at < text.size() && next_moves()) {
      at += FirstCharacter(text.substr(at)).bytes;
    }
    normal.append(text.data() + done, letter - done);
    AppendNfc(characters, text.substr(letter, at - letter), &normal);
    done = at;
  }
  normal.append(text.data() + done, text.size() - done);
  return normal;
}

}  // namespace tandem
