#include "datasets/tokenizers/byte_pair_tokenizer.h"

#include <glog/logging.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "core/base/status_macros.h"
#include "core/base/utf8.h"
#include "datasets/tokenizers/byte_pair/encoding.h"
#include "datasets/tokenizers/byte_pair/nfc.h"

namespace tandem {
namespace {

// A part of a text: one of the added tokens, or what lies between them.
struct TextPart {
  absl::string_view text;
  std::optional<uint32_t> id;
};

// Thread-safe.
class AddedTokens {
 public:
  // Requires that none is empty.
  explicit AddedTokens(std::vector<AddedToken> tokens);

  // The parts of `text`, none of them empty: of tokens that begin at the same
  // place the longest, from the left to the right. Without `with_special`,
  // special tokens are text like any other.
  std::vector<TextPart> Find(absl::string_view text, bool with_special) const;

 private:
  const AddedToken* TokenAtBeginning(absl::string_view text,
                                     bool with_special) const;

  std::vector<AddedToken> tokens_;
  // By the first byte: which tokens, the longest first.
  std::array<std::vector<size_t>, 256> by_byte_;
};

AddedTokens::AddedTokens(std::vector<AddedToken> tokens)
    : tokens_(std::move(tokens)) {
  for (size_t i = 0; i < tokens_.size(); ++i) {
    CHECK(!tokens_[i].text.empty());
    by_byte_[static_cast<uint8_t>(tokens_[i].text.front())].push_back(i);
  }
  for (std::vector<size_t>& some : by_byte_) {
    std::stable_sort(some.begin(), some.end(), [&](size_t a, size_t b) {
      return tokens_[a].text.size() > tokens_[b].text.size();
    });
  }
}

const AddedToken* AddedTokens::TokenAtBeginning(absl::string_view text,
                                                bool with_special) const {
  for (const size_t i : by_byte_[static_cast<uint8_t>(text.front())]) {
    const AddedToken& token = tokens_[i];
    if (token.special && !with_special) continue;
    if (absl::StartsWith(text, token.text)) return &token;
  }
  return nullptr;
}

std::vector<TextPart> AddedTokens::Find(absl::string_view text,
                                        bool with_special) const {
  std::vector<TextPart> parts;
  size_t done = 0;
  const auto add_text_until = [&](size_t end) {
    if (end > done) parts.push_back({text.substr(done, end - done), {}});
  };
  for (size_t place = 0; place < text.size();) {
    const AddedToken* const token =
        TokenAtBeginning(text.substr(place), with_special);
    if (token == nullptr) {
      ++place;
      continue;
    }
    add_text_until(place);
    parts.push_back({text.substr(place, token->text.size()), token->id});
    place += token->text.size();
    done = place;
  }
  add_text_until(text.size());
  return parts;
}

// Words of texts are short and few; what is neither is not worth the memory.
constexpr size_t kLongestRemembered = 64;
constexpr size_t kMostRemembered = 1 << 16;

using Tokens = std::vector<uint32_t>;

class BytePairTokenizer : public Tokenizer {
 public:
  explicit BytePairTokenizer(BytePairParts parts)
      : parts_(std::move(parts)),
        encoding_(parts_.vocabulary.bytes, parts_.vocabulary.merges),
        added_(AllAddedTokens(parts_, /*normalized=*/false)),
        normalized_(AllAddedTokens(parts_, /*normalized=*/true)),
        words_(std::move(parts_.vocabulary.words)) {
    parts_.vocabulary.merges = {};
    if (parts_.whole_words) RememberWholeWords();
    AddAddedWords();
  }

  absl::StatusOr<Tokens> Encode(absl::string_view text,
                                SpecialTokensInText special) const override {
    std::string replaced;
    if (!IsUtf8(text)) {
      replaced = ReplaceInvalidUtf8(text);
      text = replaced;
    }
    Tokens tokens;
    const bool with_special = special == SpecialTokensInText::kRecognized;
    absl::MutexLock lock(&mutex_);
    for (const TextPart& part : added_.Find(text, with_special)) {
      if (part.id.has_value()) {
        tokens.push_back(*part.id);
      } else {
        TANDEM_RETURN_IF_ERROR(EncodeRest(part.text, with_special, &tokens));
      }
    }
    return tokens;
  }

  std::string Decode(absl::Span<const uint32_t> tokens) const override {
    std::string text;
    for (const uint32_t token : tokens) {
      if (token < words_.size()) text += words_[token];
    }
    return text;
  }

  bool beginning_differs() const override { return parts_.space_first; }

  int64_t vocabulary_size() const override {
    return static_cast<int64_t>(words_.size());
  }
  std::optional<uint32_t> end_of_text() const override {
    return parts_.end_of_text;
  }
  const std::vector<SpecialToken>& special_tokens() const override {
    return special_tokens_;
  }
  const Tokens& prefix() const override { return parts_.prefix; }
  const Tokens& suffix() const override { return parts_.suffix; }

 private:
  static std::vector<AddedToken> AllAddedTokens(const BytePairParts& parts,
                                                bool normalized) {
    std::vector<AddedToken> added;
    for (const AddedToken& token : parts.added) {
      if (token.normalized != normalized) continue;
      added.push_back(token);
      if (normalized && parts.nfc) added.back().text = Nfc(token.text);
    }
    return added;
  }

  void RememberWholeWords() {
    for (uint32_t id = 0; id < words_.size(); ++id) {
      if (!words_[id].empty()) whole_words_[words_[id]] = id;
    }
  }

  void AddAddedWords() {
    for (const AddedToken& token : parts_.added) {
      if (token.id >= words_.size()) words_.resize(token.id + 1);
      words_[token.id] = token.text;
      if (!token.special) continue;
      whole_words_.erase(token.text);
      special_tokens_.push_back({token.text, token.id});
    }
    std::sort(special_tokens_.begin(), special_tokens_.end(),
              [](const auto& a, const auto& b) { return a.id < b.id; });
  }

  // What lies between added tokens that are not normalized.
  absl::Status EncodeRest(absl::string_view text, bool with_special,
                          Tokens* tokens) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::string normal;
    if (parts_.nfc) {
      normal = Nfc(text);
      text = normal;
    }
    for (const TextPart& part : normalized_.Find(text, with_special)) {
      if (part.id.has_value()) {
        tokens->push_back(*part.id);
      } else {
        TANDEM_RETURN_IF_ERROR(EncodeText(part.text, tokens));
      }
    }
    return absl::OkStatus();
  }

  // Checks that every byte has a token.
  absl::Status CheckBytes(absl::string_view text) const {
    const std::string& without = parts_.vocabulary.without_token;
    if (without.empty()) return absl::OkStatus();
    const size_t found = text.find_first_of(without);
    if (found == absl::string_view::npos) return absl::OkStatus();
    size_t begin = found;
    while ((static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) --begin;
    return absl::InvalidArgumentError(absl::StrFormat(
        "the tokenizer's vocabulary has no token for the byte 0x%02X of the "
        "character U+%04X, which the text would lose",
        static_cast<uint8_t>(text[found]),
        FirstCharacter(text.substr(begin)).code));
  }

  absl::Status EncodeText(absl::string_view text, Tokens* tokens) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    TANDEM_RETURN_IF_ERROR(CheckBytes(text));
    std::string with_space;
    if (parts_.space_first && !absl::StartsWith(text, " ")) {
      with_space = absl::StrCat(" ", text);
      text = with_space;
    }
    std::vector<absl::string_view> pieces = {text};
    for (const Splitter& splitter : parts_.splitters) {
      std::vector<absl::string_view> smaller;
      TANDEM_RETURN_IF_ERROR(splitter.Split(pieces, &smaller));
      pieces = std::move(smaller);
    }
    for (const absl::string_view piece : pieces) EncodePiece(piece, tokens);
    return absl::OkStatus();
  }

  void EncodePiece(absl::string_view piece, Tokens* tokens) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto word = whole_words_.find(piece);
    if (word != whole_words_.end()) return tokens->push_back(word->second);
    if (piece.size() > kLongestRemembered) {
      return encoding_.Encode(piece, tokens);
    }
    const auto known = remembered_.find(piece);
    if (known != remembered_.end()) return Append(known->second, tokens);
    Tokens found;
    encoding_.Encode(piece, &found);
    Append(found, tokens);
    if (remembered_.size() == kMostRemembered) remembered_.clear();
    remembered_.emplace(piece, std::move(found));
  }

  static void Append(const Tokens& some, Tokens* tokens) {
    tokens->insert(tokens->end(), some.begin(), some.end());
  }

  BytePairParts parts_;
  BytePairEncoding encoding_;
  AddedTokens added_;               // found in the text as it is
  AddedTokens normalized_;          // in what lies between those
  std::vector<std::string> words_;  // by number: each token's bytes
  std::vector<SpecialToken> special_tokens_;
  absl::flat_hash_map<std::string, uint32_t> whole_words_;
  mutable absl::Mutex mutex_;
  mutable absl::flat_hash_map<std::string, Tokens> remembered_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<Tokenizer> MakeBytePairTokenizer(BytePairParts parts) {
  return std::make_unique<BytePairTokenizer>(std::move(parts));
}

}  // namespace tandem
