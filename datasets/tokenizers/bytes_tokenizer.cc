#include "datasets/tokenizers/bytes_tokenizer.h"

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

}  // namespace

std::unique_ptr<Tokenizer> MakeBytesTokenizer() {
  return std::make_unique<BytesTokenizer>();
}

}  // namespace tandem
