#include "datasets/tokenizers/open_tokenizer.h"

#include <fstream>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "datasets/tokenizers/byte_pair_files.h"
#include "datasets/tokenizers/sentence_piece_tokenizer.h"
#include "datasets/tokenizers/tokenizer_files.h"
#include "datasets/tokenizers/tokenizer_json.h"

namespace tandem {
namespace {

constexpr uint32_t kEndOfText = 256;

class BytesTokenizer : public Tokenizer {
 public:
  absl::StatusOr<std::vector<uint32_t>> Encode(
      absl::string_view text, SpecialTokensInText) const override {
    std::vector<uint32_t> tokens;
    tokens.reserve(text.size());
    for (const char byte : text) {
      tokens.push_back(static_cast<unsigned char>(byte));
    }
    return tokens;
  }

  std::string Decode(absl::Span<const uint32_t> tokens) const override {
    std::string text;
    text.reserve(tokens.size());
    for (const uint32_t token : tokens) {
      if (token < kEndOfText) text.push_back(static_cast<char>(token));
    }
    return text;
  }

  int64_t vocabulary_size() const override { return kEndOfText + 1; }
  std::optional<uint32_t> end_of_text() const override { return kEndOfText; }
  const std::vector<SpecialToken>& special_tokens() const override {
    return special_tokens_;
  }
  const std::vector<uint32_t>& prefix() const override { return nothing_; }
  const std::vector<uint32_t>& suffix() const override { return nothing_; }

 private:
  const std::vector<SpecialToken> special_tokens_ = {{"", kEndOfText}};
  const std::vector<uint32_t> nothing_ = {};
};

// Token 0 to 255 is the byte of that number, 256 the end of a text, which no
// text means and which decodes to nothing. Any bytes come back as they were.
std::unique_ptr<Tokenizer> MakeBytesTokenizer() {
  return std::make_unique<BytesTokenizer>();
}

using TokenizerOrError = absl::StatusOr<std::unique_ptr<Tokenizer>>;

bool IsSentencePieceFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  char first = 0;
  return file.get(first) && IsSentencePiece({&first, 1});
}

TokenizerOrError OpenFile(const std::string& path) {
  if (absl::EndsWith(path, ".json")) return ReadTokenizerJson(path);
  return IsSentencePieceFile(path) ? ReadSentencePiece(path)
                                   : ReadTiktokenRanks(path);
}

TokenizerOrError OpenFolder(const std::string& folder) {
  const std::string whole = absl::StrCat(folder, "/tokenizer.json");
  const std::string model = absl::StrCat(folder, "/tokenizer.model");
  const bool has_model = IsRegularFile(model);
  if (IsRegularFile(whole)) {
    TokenizerOrError tokenizer = ReadTokenizerJson(whole);
    const bool is_copy = has_model && IsSentencePieceFile(model);
    return tokenizer.ok() || !is_copy ? std::move(tokenizer)
                                      : ReadSentencePiece(model);
  }
  const std::string vocabulary = absl::StrCat(folder, "/vocab.json");
  if (IsRegularFile(vocabulary)) {
    return ReadGpt2Files(vocabulary, absl::StrCat(folder, "/merges.txt"));
  }
  if (NamesBytes(absl::StrCat(folder, "/tokenizer.txt"))) {
    return MakeBytesTokenizer();
  }
  if (has_model) return OpenFile(model);
  return absl::InvalidArgumentError(absl::StrCat(
      "no tokenizer at '", folder,
      "': expected bytes, a tokenizer.json, a sentencepiece model, a rank file "
      "of tiktoken's, or a folder with tokenizer.json, with vocab.json and "
      "merges.txt, or with "
      "tokenizer.model"));
}

}  // namespace

bool HasTokenizer(const std::string& folder) {
  return absl::c_any_of(kTokenizerFiles, [&](const char* name) {
    return name != absl::string_view("merges.txt") &&
           IsRegularFile(absl::StrCat(folder, "/", name));
  });
}

TokenizerOrError OpenTokenizer(const std::string& name_or_path) {
  if (name_or_path == "bytes") return MakeBytesTokenizer();
  return IsRegularFile(name_or_path) ? OpenFile(name_or_path)
                                     : OpenFolder(name_or_path);
}

}  // namespace tandem
