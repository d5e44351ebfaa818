#include "tools/texts/text_encoder.h"

#include <utility>

#include "core/base/status_macros.h"
#include "tools/texts/document_reader.h"

namespace tandem {
namespace {

// Places of each kind: more than the longest token has bytes, for a text that
// is one sign again and again.
constexpr size_t kPlaces = 160;

bool EndsWith(absl::Span<const uint32_t> all, absl::Span<const uint32_t> end) {
  return end.size() <= all.size() && all.last(end.size()) == end;
}

}  // namespace

TextEncoder::TextEncoder(const Tokenizer& tokenizer,
                         const TextEncoderOptions& options, Take take)
    : tokenizer_(tokenizer),
      options_(options),
      take_(std::move(take)),
      wanted_(options.piece_bytes) {}

absl::StatusOr<std::vector<uint32_t>> TextEncoder::Encode(
    absl::string_view text) const {
  return tokenizer_.Encode(text, options_.special);
}

absl::Status TextEncoder::Add(absl::string_view text) {
  waiting_.append(text.data(), text.size());
  const bool is_enough = waiting_.size() >= wanted_ + options_.search_bytes +
                                                options_.behind_bytes;
  if (!is_enough || tokenizer_.beginning_differs()) return absl::OkStatus();
  return EncodePiece();
}

absl::Status TextEncoder::Finish() {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<uint32_t> tokens, Encode(waiting_));
  return take_(waiting_, tokens);
}

absl::Status TextEncoder::EncodePiece() {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<uint32_t> tokens, Encode(waiting_));
  TANDEM_ASSIGN_OR_RETURN(const std::optional<End> end, FindEnd(tokens));
  if (!end) {
    // Not again from here: that would take the square of the text's length.
    wanted_ = 2 * waiting_.size();
    return absl::OkStatus();
  }
  TANDEM_RETURN_IF_ERROR(
      take_(absl::string_view(waiting_).substr(0, end->bytes),
            absl::MakeConstSpan(tokens).first(end->tokens)));
  waiting_.erase(0, end->bytes);
  wanted_ = options_.piece_bytes;
  return absl::OkStatus();
}

// `tokens`: of all that waits.
absl::StatusOr<std::optional<TextEncoder::End>> TextEncoder::FindEnd(
    absl::Span<const uint32_t> tokens) const {
  const absl::string_view text = waiting_;
  const size_t most = text.size() - options_.behind_bytes;
  for (const size_t place :
       CutPlaces(text, most - options_.search_bytes, most, kPlaces)) {
    TANDEM_ASSIGN_OR_RETURN(const std::vector<uint32_t> rest,
                            Encode(text.substr(place)));
    if (EndsWith(tokens, rest)) {
      return std::optional<End>(End{place, tokens.size() - rest.size()});
    }
  }
  return std::optional<End>();
}

}  // namespace tandem
