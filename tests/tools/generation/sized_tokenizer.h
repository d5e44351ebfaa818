// Sized tokenizer: one that has a size, maybe an end of text, and nothing else.

#ifndef TANDEM_TESTS_TOOLS_GENERATION_SIZED_TOKENIZER_H_
#define TANDEM_TESTS_TOOLS_GENERATION_SIZED_TOKENIZER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "datasets/tokenizers/tokenizer.h"

namespace tandem {

class SizedTokenizer : public Tokenizer {
 public:
  explicit SizedTokenizer(int64_t size,
                          std::optional<uint32_t> end = std::nullopt)
      : size_(size), end_(end) {}

  absl::StatusOr<std::vector<uint32_t>> Encode(
      absl::string_view, SpecialTokensInText) const override {
    return std::vector<uint32_t>();
  }
  std::string Decode(absl::Span<const uint32_t>) const override { return ""; }
  int64_t vocabulary_size() const override { return size_; }
  std::optional<uint32_t> end_of_text() const override { return end_; }
  const std::vector<SpecialToken>& special_tokens() const override {
    return special_;
  }
  const std::vector<uint32_t>& prefix() const override { return nothing_; }
  const std::vector<uint32_t>& suffix() const override { return nothing_; }

 private:
  const int64_t size_;
  const std::optional<uint32_t> end_;
  const std::vector<SpecialToken> special_ = {};
  const std::vector<uint32_t> nothing_ = {};
};

}  // namespace tandem

#endif  // TANDEM_TESTS_TOOLS_GENERATION_SIZED_TOKENIZER_H_
