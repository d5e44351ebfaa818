// Tokenizer: text to token numbers, and back.

#ifndef TANDEM_DATASETS_TOKENIZERS_TOKENIZER_H_
#define TANDEM_DATASETS_TOKENIZERS_TOKENIZER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tandem {

// A token outside of the vocabulary proper, such as <|endoftext|>.
struct SpecialToken {
  std::string text;  // empty: no text means it
  uint32_t id = 0;
};

// What Encode does where the text of a special token stands in a text: takes it
// for that token, as Python's tokenizers do, or for any other text (tiktoken's
// encode_ordinary), which is what suits texts of strangers.
enum class SpecialTokensInText { kRecognized, kOrdinary };

// Thread-safe.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // The tokens of `text`, any bytes, without prefix() and suffix(). What does
  // with bytes that are no UTF-8 the tokenizer's own header says.
  // InvalidArgument for a character that it has no tokens for;
  // ResourceExhausted where its regular expression needs too long.
  virtual absl::StatusOr<std::vector<uint32_t>> Encode(
      absl::string_view text, SpecialTokensInText special) const = 0;
  absl::StatusOr<std::vector<uint32_t>> Encode(absl::string_view text) const {
    return Encode(text, SpecialTokensInText::kRecognized);
  }

  // The bytes of `tokens`, those of special ones too; nothing for numbers that
  // no token has (models are often given a few more than there are tokens).
  // Bytes, for a token may end within a character: the pieces of a text can be
  // decoded one by one and put together.
  virtual std::string Decode(absl::Span<const uint32_t> tokens) const = 0;

  // Whether a text's beginning is encoded otherwise than the same text within
  // another (some put a space before it). If not, there are places, most ends
  // of lines among them, where a text can be cut and has the tokens of its
  // parts.
  virtual bool beginning_differs() const { return false; }

  // One more than the largest number.
  virtual int64_t vocabulary_size() const = 0;
  // What stands after each text (<|endoftext|>), where the tokenizer has one.
  virtual std::optional<uint32_t> end_of_text() const = 0;
  // Without the end of text, where that is the last: of texts that are written
  // without it.
  int64_t vocabulary_without_end() const {
    const int64_t all = vocabulary_size();
    const std::optional<uint32_t> end = end_of_text();
    return end.has_value() && *end + int64_t{1} == all ? all - 1 : all;
  }
  // By number.
  virtual const std::vector<SpecialToken>& special_tokens() const = 0;
  // What the tokenizer's authors put before and after each text by themselves
  // (Llama 3's <|begin_of_text|>), often nothing.
  virtual const std::vector<uint32_t>& prefix() const = 0;
  virtual const std::vector<uint32_t>& suffix() const = 0;
};

}  // namespace tandem

#endif  // TANDEM_DATASETS_TOKENIZERS_TOKENIZER_H_
