// Text encoder: the tokens of a text that comes part by part, and may be too
// long to be encoded in one piece.

#ifndef TANDEM_TOOLS_TEXTS_TEXT_ENCODER_H_
#define TANDEM_TOOLS_TEXTS_TEXT_ENCODER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "datasets/tokenizers/tokenizer.h"

namespace tandem {

struct TextEncoderOptions {
  SpecialTokensInText special = SpecialTokensInText::kOrdinary;
  // About as much of a text is encoded at a time.
  size_t piece_bytes = size_t{8} << 20;
  // So much of what waits, before the last `behind_bytes`, is searched for a
  // place where a piece can end.
  size_t search_bytes = 16 << 10;
  size_t behind_bytes = 16 << 10;
};

// Tokens are those of the whole text, however it is cut: a piece ends where the
// tokenizer, when it begins anew there, has the tokens that it has when it goes
// on, for all of the text that waits behind. From there on it is in the same
// state both ways: its expressions look ahead, and not far back. Where there is
// no such place the piece is twice as long the next time, and the text of a
// tokenizer whose beginning_differs() is one piece. Not thread-safe.
class TextEncoder {
 public:
  // A piece of the text, none of them empty unless all of it is, and its
  // tokens.
  using Take = std::function<absl::Status(absl::string_view text,
                                          absl::Span<const uint32_t> tokens)>;

  // `tokenizer` must outlive it.
  TextEncoder(const Tokenizer& tokenizer, const TextEncoderOptions& options,
              Take take);

  // More of the text. Errors are Take's and the tokenizer's.
  absl::Status Add(absl::string_view text);
  // What is left of it. To be called once, last.
  absl::Status Finish();

 private:
  struct End {
    size_t bytes;
    size_t tokens;
  };

  absl::StatusOr<std::vector<uint32_t>> Encode(absl::string_view text) const;
  absl::Status EncodePiece();
  absl::StatusOr<std::optional<End>> FindEnd(
      absl::Span<const uint32_t> tokens) const;

  const Tokenizer& tokenizer_;
  const TextEncoderOptions options_;
  const Take take_;
  std::string waiting_;
  size_t wanted_;  // bytes of the next piece
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_TEXTS_TEXT_ENCODER_H_
