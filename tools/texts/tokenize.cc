#include "tools/texts/tokenize.h"

#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/base/status_macros.h"
#include "datasets/tokenizers/open_tokenizer.h"
#include "datasets/tokenizers/save_tokenizer.h"
#include "datasets/tokenizers/tokenizer.h"
#include "datasets/tokens/token_writer.h"
#include "tools/texts/document_reader.h"
#include "tools/texts/text_files.h"

namespace tandem {
namespace {

// A number from 0 to 1 that is the text's own (FNV-1a, then MurmurHash3's last
// steps, for its high bits are poor).
double PlaceOf(absl::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char byte : text) {
    hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001b3;
  }
  hash = (hash ^ hash >> 33) * 0xff51afd7ed558ccd;
  hash = (hash ^ hash >> 33) * 0xc4ceb9fe1a85ec53;
  hash ^= hash >> 33;
  return static_cast<double>(hash >> 11) / static_cast<double>(1ULL << 53);
}

// Without its end of text a vocabulary is smaller by it, where it is the last.
int64_t VocabularyOf(const Tokenizer& tokenizer, bool end_of_text) {
  const int64_t all = tokenizer.vocabulary_size();
  const auto end = tokenizer.end_of_text();
  return !end_of_text && end.has_value() && *end + int64_t{1} == all ? all - 1
                                                                     : all;
}

class TokenizeRun {
 public:
  TokenizeRun(const TokenizeOptions& options, const Tokenizer& tokenizer,
              TokenWriter train, TokenWriter validation)
      : options_(options),
        tokenizer_(tokenizer),
        sides_{std::move(train), std::move(validation)} {}

  // `alone`: the text is cut at `cut_after`.
  absl::Status Take(const DocumentPiece& piece, bool alone, int64_t cut_after) {
    bool begins = piece.first;
    if (alone) {
      const int64_t before =
          piece.bytes_read - static_cast<int64_t>(piece.text.size());
      const bool held_out = before > 0 && before >= cut_after;
      begins = piece.first || (held_out && side_ == &sides_[0]);
      side_ = &sides_[held_out ? 1 : 0];
    } else if (piece.first) {
      side_ = &sides_[PlaceOf(piece.text) < options_.validation_fraction];
    }
    if (begins) side_->BeginDocument();
    if (piece.first && options_.end_of_text) {
      TANDEM_RETURN_IF_ERROR(side_->Append(tokenizer_.prefix()));
    }
    TANDEM_ASSIGN_OR_RETURN(
        const std::vector<uint32_t> tokens,
        tokenizer_.Encode(piece.text, options_.special_tokens
                                          ? SpecialTokensInText::kRecognized
                                          : SpecialTokensInText::kOrdinary));
    TANDEM_RETURN_IF_ERROR(side_->Append(tokens));
    return piece.last && options_.end_of_text ? EndDocument()
                                              : absl::OkStatus();
  }

  int64_t tokens() const { return sides_[0].tokens() + sides_[1].tokens(); }

  absl::StatusOr<TokenizeResult> Finish() {
    for (const TokenWriter& side : sides_) {
      const bool wanted =
          &side == &sides_[0] || options_.validation_fraction > 0;
      if (!wanted || side.tokens() > 0) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "of ", tokens(), " tokens in ",
          sides_[0].documents() + sides_[1].documents(),
          " documents none would be ",
          &side == &sides_[0] ? "trained on" : "held out",
          ": give more text, or another --validation_fraction than ",
          options_.validation_fraction));
    }
    for (TokenWriter& side : sides_) TANDEM_RETURN_IF_ERROR(side.Commit());
    return TokenizeResult{0, sides_[0].tokens(), sides_[0].documents(),
                          sides_[1].tokens(), sides_[1].documents()};
  }

 private:
  absl::Status EndDocument() {
    std::vector<uint32_t> end = tokenizer_.suffix();
    const auto mark = tokenizer_.end_of_text();
    if (mark.has_value() && (end.empty() || end.back() != *mark)) {
      end.push_back(*mark);
    }
    return side_->Append(end);
  }

  const TokenizeOptions& options_;
  const Tokenizer& tokenizer_;
  TokenWriter sides_[2];  // trained on, held out
  TokenWriter* side_ = nullptr;
};

absl::Status Check(const TokenizeOptions& options) {
  if (options.tokenizer.empty() || options.input.empty() ||
      options.output.empty()) {
    return absl::InvalidArgumentError(
        "expected --tokenizer, --input and --output");
  }
  const double fraction = options.validation_fraction;
  if (fraction >= 0 && fraction < 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--validation_fraction=", fraction, ": expected 0 or more, below 1"));
}

absl::Status MakeFolder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error) return absl::OkStatus();
  return absl::ErrnoToStatus(error.value(),
                             absl::StrCat("cannot make the folder ", folder));
}

absl::StatusOr<TokenWriter> OpenSide(const TokenizeOptions& options,
                                     const Tokenizer& tokenizer,
                                     const char* name) {
  return TokenWriter::Create(
      absl::StrCat(options.output, "/", name),
      VocabularyOf(tokenizer, options.end_of_text),
      options.end_of_text ? tokenizer.end_of_text() : std::nullopt);
}

}  // namespace

absl::StatusOr<TokenizeResult> Tokenize(
    const TokenizeOptions& options,
    const std::function<void(const TokenizeProgress&)>& progress) {
  TANDEM_RETURN_IF_ERROR(Check(options));
  TANDEM_ASSIGN_OR_RETURN(const auto tokenizer,
                          OpenTokenizer(options.tokenizer));
  TANDEM_ASSIGN_OR_RETURN(const std::vector<TextFile> files,
                          FindTextFiles(options.input));
  TANDEM_RETURN_IF_ERROR(MakeFolder(options.output));
  TANDEM_RETURN_IF_ERROR(SaveTokenizer(options.tokenizer, options.output));
  TANDEM_ASSIGN_OR_RETURN(TokenWriter train,
                          OpenSide(options, *tokenizer, "train.bin"));
  TANDEM_ASSIGN_OR_RETURN(TokenWriter validation,
                          OpenSide(options, *tokenizer, "val.bin"));
  TokenizeRun run(options, *tokenizer, std::move(train), std::move(validation));
  TokenizeProgress now;
  for (const TextFile& file : files) now.all_bytes += file.bytes;
  const bool alone = files.size() == 1 && !files.front().json_lines &&
                     options.validation_fraction > 0;
  ReadDocumentsOptions reading;
  reading.column = options.column;
  if (tokenizer->beginning_differs()) {
    reading.piece_bytes = std::numeric_limits<size_t>::max();
  }
  if (alone) {
    reading.cut_after = static_cast<int64_t>(
        static_cast<double>(now.all_bytes) * (1 - options.validation_fraction));
  }
  int64_t before = 0;
  for (const TextFile& file : files) {
    TANDEM_RETURN_IF_ERROR(
        ReadDocuments(file, reading, [&](const DocumentPiece& piece) {
          TANDEM_RETURN_IF_ERROR(run.Take(piece, alone, reading.cut_after));
          now.bytes = before + piece.bytes_read;
          now.tokens = run.tokens();
          progress(now);
          return absl::OkStatus();
        }));
    before += file.bytes;
  }
  TANDEM_ASSIGN_OR_RETURN(TokenizeResult result, run.Finish());
  result.vocabulary = VocabularyOf(*tokenizer, options.end_of_text);
  return result;
}

}  // namespace tandem
