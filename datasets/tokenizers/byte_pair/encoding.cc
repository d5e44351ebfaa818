#include "datasets/tokenizers/byte_pair/encoding.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <tuple>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "core/base/status_macros.h"
#include "core/base/utf8.h"

namespace tandem {
namespace {

constexpr size_t kNone = static_cast<size_t>(-1);

uint64_t PairKey(uint32_t left, uint32_t right) {
  return uint64_t{left} << 32 | right;
}

}  // namespace

// A token of the piece, in a list of neighbours.
struct BytePairEncoding::Part {
  uint32_t token;
  size_t before;
  size_t after;
  bool gone = false;  // into the part on its left
};

// Neighbours that a merge takes, as they were when it was noted.
struct BytePairEncoding::Candidate {
  uint32_t rank;
  size_t left;  // of them, the part
  uint32_t merged;

  bool operator>(const Candidate& other) const {
    return std::tie(rank, left) > std::tie(other.rank, other.left);
  }
};

class BytePairEncoding::Merging {
 public:
  Merging(const BytePairEncoding& encoding, absl::string_view piece)
      : encoding_(encoding) {
    const size_t count = piece.size();
    parts_.reserve(count);
    for (size_t i = 0; i < count; ++i) {
      const auto byte = static_cast<uint8_t>(piece[i]);
      parts_.push_back({encoding.bytes_[byte], i == 0 ? kNone : i - 1,
                        i + 1 == count ? kNone : i + 1});
    }
  }

  void Run() {
    for (size_t i = 0; i < parts_.size(); ++i) Note(i, &waiting_);
    std::make_heap(waiting_.begin(), waiting_.end(), std::greater<>());
    while (!waiting_.empty()) {
      std::pop_heap(waiting_.begin(), waiting_.end(), std::greater<>());
      const Candidate first = waiting_.back();
      waiting_.pop_back();
      if (IsStill(first)) Join(first);
    }
  }

  void AppendTo(std::vector<uint32_t>* tokens) const {
    for (const Part& part : parts_) {
      if (!part.gone) tokens->push_back(part.token);
    }
  }

 private:
  bool Note(size_t left, std::vector<Candidate>* candidates) const {
    if (left == kNone || parts_[left].after == kNone) return false;
    const Part& part = parts_[left];
    const Ranked* const merge =
        encoding_.Find(part.token, parts_[part.after].token);
    if (merge == nullptr) return false;
    candidates->push_back({merge->rank, left, merge->merged});
    return true;
  }

  void Wait(size_t left) {
    if (!Note(left, &waiting_)) return;
    std::push_heap(waiting_.begin(), waiting_.end(), std::greater<>());
  }

  bool IsStill(const Candidate& candidate) const {
    const Part& part = parts_[candidate.left];
    if (part.gone || part.after == kNone) return false;
    const Ranked* const merge =
        encoding_.Find(part.token, parts_[part.after].token);
    return merge != nullptr && merge->rank == candidate.rank;
  }

  void Join(const Candidate& candidate) {
    Part& part = parts_[candidate.left];
    Part& gone = parts_[part.after];
    part.token = candidate.merged;
    part.after = gone.after;
    gone.gone = true;
    if (part.after != kNone) parts_[part.after].before = candidate.left;
    Wait(part.before);
    Wait(candidate.left);
  }

  const BytePairEncoding& encoding_;
  std::vector<Part> parts_;
  std::vector<Candidate> waiting_;  // a heap, the most urgent first
};

BytePairEncoding::BytePairEncoding(const std::array<uint32_t, 256>& bytes,
                                   absl::Span<const Merge> merges)
    : bytes_(bytes) {
  merges_.reserve(merges.size());
  uint32_t rank = 0;
  for (const Merge& merge : merges) {
    merges_[PairKey(merge.left, merge.right)] = {rank++, merge.merged};
  }
}

const BytePairEncoding::Ranked* BytePairEncoding::Find(uint32_t left,
                                                       uint32_t right) const {
  const auto found = merges_.find(PairKey(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

void BytePairEncoding::Encode(absl::string_view piece,
                              std::vector<uint32_t>* tokens) const {
  Merging merging(*this, piece);
  merging.Run();
  merging.AppendTo(tokens);
}

namespace {

// GPT-2's alphabet for bytes: how files of byte-level vocabularies write them.
// Beyond the last character that stands for one:
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

// The character that stands for a byte, in UTF-8: the byte's own in Latin-1
// where that can be seen (! to ~, inverted exclamation mark to y with
// diaeresis, without the soft hyphen), else U+0100 and on, in the order of the
// bytes: a space is U+0120. GPT-2's bytes_to_unicode().
std::string ByteCharacter(uint8_t byte) {
  std::string character;
  AppendUtf8(TheAlphabet().characters[byte], &character);
  return character;
}

// The bytes that a word of that alphabet stands for. Nothing for a word with
// any other character.
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

// Keys lie in words that stay where they are.
using Numbers = absl::flat_hash_map<absl::string_view, uint32_t>;

absl::StatusOr<Numbers> NumbersByWord(const WordsAndNumbers& words) {
  Numbers numbers;
  numbers.reserve(words.size());
  for (const auto& [word, number] : words) {
    if (number < 0 || number >= kMostTokens) {
      return absl::InvalidArgumentError(
          absl::StrCat("the token '", word, "' has the number ", number,
                       "; expected 0 to ", kMostTokens - 1));
    }
    numbers[word] = static_cast<uint32_t>(number);
  }
  return numbers;
}

void Put(std::string bytes, uint32_t number, std::vector<std::string>* words) {
  if (number >= words->size()) words->resize(number + 1);
  (*words)[number] = std::move(bytes);
}

// Finds the 256 words that `write` makes of bytes.
template <typename Write>
absl::Status FindBytes(const Numbers& numbers, const Write& write,
                       Vocabulary* vocabulary) {
  for (int i = 0; i < 256; ++i) {
    const auto byte = static_cast<uint8_t>(i);
    const auto found = numbers.find(write(byte));
    if (found != numbers.end()) {
      vocabulary->bytes[byte] = found->second;
      continue;
    }
    if (byte < 0x80) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "the vocabulary has no token for the byte 0x%02X, which texts would "
          "lose: it is no byte-level vocabulary, or was trained without its "
          "initial alphabet",
          byte));
    }
    vocabulary->bytes[byte] = 0;  // which no text asks for
    if (MayBeInUtf8(byte)) {
      vocabulary->without_token.push_back(static_cast<char>(byte));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Merge> FindMerge(const Numbers& numbers, const std::string& left,
                                const std::string& right) {
  const auto a = numbers.find(left);
  const auto b = numbers.find(right);
  const auto both = numbers.find(absl::StrCat(left, right));
  if (a != numbers.end() && b != numbers.end() && both != numbers.end()) {
    return Merge{a->second, b->second, both->second};
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the merge of '", left, "' and '", right,
                   "' needs both and the two together in the vocabulary"));
}

}  // namespace

absl::StatusOr<WordsAndNumbers> ReadWordsAndNumbers(
    const nlohmann::json& json) {
  if (!json.is_object()) {
    return absl::InvalidArgumentError(
        "the vocabulary is no JSON object of words and numbers");
  }
  WordsAndNumbers words;
  words.reserve(json.size());
  for (const auto& [word, number] : json.items()) {
    if (!number.is_number_integer()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the token '", word, "' has no number"));
    }
    words.emplace_back(word, number.get<int64_t>());
  }
  return words;
}

absl::StatusOr<Vocabulary> MakeVocabulary(const WordsAndNumbers& words,
                                          const WordPairs& merges) {
  TANDEM_ASSIGN_OR_RETURN(const Numbers numbers, NumbersByWord(words));
  Vocabulary vocabulary;
  for (const auto& [word, number] : words) {
    Put(BytesOfWord(word).value_or(word), static_cast<uint32_t>(number),
        &vocabulary.words);
  }
  TANDEM_RETURN_IF_ERROR(FindBytes(numbers, ByteCharacter, &vocabulary));
  vocabulary.merges.reserve(merges.size());
  for (const auto& [left, right] : merges) {
    TANDEM_ASSIGN_OR_RETURN(const Merge merge, FindMerge(numbers, left, right));
    vocabulary.merges.push_back(merge);
  }
  return vocabulary;
}

absl::StatusOr<Vocabulary> MakeRankedVocabulary(const WordsAndNumbers& words) {
  TANDEM_ASSIGN_OR_RETURN(const Numbers numbers, NumbersByWord(words));
  Vocabulary vocabulary;
  for (const auto& [word, number] : words) {
    Put(word, static_cast<uint32_t>(number), &vocabulary.words);
  }
  const auto as_it_is = [](uint8_t byte) {
    return std::string(1, static_cast<char>(byte));
  };
  TANDEM_RETURN_IF_ERROR(FindBytes(numbers, as_it_is, &vocabulary));
  for (uint32_t rank = 0; rank < vocabulary.words.size(); ++rank) {
    const absl::string_view word = vocabulary.words[rank];
    for (size_t cut = 1; cut < word.size(); ++cut) {
      const auto left = numbers.find(word.substr(0, cut));
      const auto right = numbers.find(word.substr(cut));
      if (left == numbers.end() || right == numbers.end()) continue;
      vocabulary.merges.push_back({left->second, right->second, rank});
    }
  }
  return vocabulary;
}

}  // namespace tandem
