#include "tools/texts/tokenize.h"

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/base/status_macros.h"
#include "core/program/long_task.h"
#include "datasets/tokenizers/open_tokenizer.h"
#include "datasets/tokenizers/tokenizer.h"
#include "datasets/tokenizers/tokenizer_files.h"
#include "datasets/tokens/token_writer.h"
#include "tools/texts/document_reader.h"
#include "tools/texts/text_encoder.h"
#include "tools/texts/text_files.h"
#include "tools/texts/text_stream.h"

namespace tandem {
namespace {

// A number from 0 to 1 that is the text's own (FNV-1a, then MurmurHash3's last
// steps, for its high bits are poor).
double SplitPlace(absl::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char byte : text) {
    hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001b3;
  }
  hash = (hash ^ hash >> 33) * 0xff51afd7ed558ccd;
  hash = (hash ^ hash >> 33) * 0xc4ceb9fe1a85ec53;
  hash ^= hash >> 33;
  return static_cast<double>(hash >> 11) / static_cast<double>(1ULL << 53);
}

int64_t TokenCount(const Tokenizer& tokenizer, bool end_of_text) {
  return end_of_text ? tokenizer.vocabulary_size()
                     : tokenizer.vocabulary_without_end();
}

// By which a document is dealt.
constexpr size_t kHashedBytes = 8 << 20;

class TokenizeRun {
 public:
  // `is_alone`: a text that is cut in two, of which the second part is held
  // out.
  TokenizeRun(const TokenizeOptions& options, const Tokenizer& tokenizer,
              TokenWriter train, TokenWriter validation, bool is_alone)
      : options_(options),
        tokenizer_(tokenizer),
        is_alone_(is_alone),
        sides_{std::move(train), std::move(validation)} {}

  absl::Status Take(const DocumentPiece& piece) {
    const bool is_cut = encoder_ && piece.behind_cut && !is_behind_;
    if (is_cut) TANDEM_RETURN_IF_ERROR(encoder_->Finish());
    if (is_cut || piece.first) Begin(piece);
    TANDEM_RETURN_IF_ERROR(encoder_->Add(piece.text));
    if (!piece.last) return absl::OkStatus();
    TANDEM_RETURN_IF_ERROR(encoder_->Finish());
    encoder_.reset();
    return options_.end_of_text ? EndDocument() : absl::OkStatus();
  }

  int64_t tokens() const { return sides_[0].tokens() + sides_[1].tokens(); }

  // Whether each side has what it was to have.
  absl::Status CheckSides() const {
    for (const TokenWriter& side : sides_) {
      const bool is_wanted =
          &side == &sides_[0] || options_.validation_fraction > 0;
      if (!is_wanted || side.tokens() > 0) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "of ", tokens(), " tokens in ",
          sides_[0].documents() + sides_[1].documents(),
          " documents none would be ",
          &side == &sides_[0] ? "trained on" : "held out",
          ": give more text, or another --validation_fraction than ",
          options_.validation_fraction));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<TokenizeResult> Finish() {
    for (TokenWriter& side : sides_) TANDEM_RETURN_IF_ERROR(side.Commit());
    TokenizeResult result;
    result.train_tokens = sides_[0].tokens();
    result.train_documents = sides_[0].documents();
    result.validation_tokens = sides_[1].tokens();
    result.validation_documents = sides_[1].documents();
    return result;
  }

 private:
  // A document, or the part of one that is held out.
  void Begin(const DocumentPiece& piece) {
    is_first_ = piece.first;
    is_behind_ = piece.behind_cut;
    side_ = nullptr;
    TextEncoderOptions encoding;
    encoding.special = options_.special_tokens
                           ? SpecialTokensInText::kRecognized
                           : SpecialTokensInText::kOrdinary;
    encoder_.emplace(
        tokenizer_, encoding,
        [this](absl::string_view text, absl::Span<const uint32_t> tokens) {
          return Write(text, tokens);
        });
  }

  bool IsHeldOut(absl::string_view beginning) const {
    if (is_alone_) return is_behind_;
    return SplitPlace(beginning.substr(0, kHashedBytes)) <
           options_.validation_fraction;
  }

  absl::Status Write(absl::string_view text,
                     absl::Span<const uint32_t> tokens) {
    if (side_ == nullptr) {
      side_ = &sides_[IsHeldOut(text) ? 1 : 0];
      side_->BeginDocument();
      if (is_first_ && options_.end_of_text) {
        TANDEM_RETURN_IF_ERROR(side_->Append(tokenizer_.prefix()));
      }
    }
    return side_->Append(tokens);
  }

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
  const bool is_alone_;
  TokenWriter sides_[2];  // trained on, held out
  // The encoder of what is being read.
  std::optional<TextEncoder> encoder_;
  TokenWriter* side_ = nullptr;
  bool is_first_ = true;
  bool is_behind_ = false;
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

// Documents would lie against each other without a word.
absl::Status CheckEndOfText(const TokenizeOptions& options,
                            const Tokenizer& tokenizer) {
  if (!options.end_of_text || tokenizer.end_of_text().has_value() ||
      !tokenizer.suffix().empty()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--tokenizer=", options.tokenizer,
      " has no token that ends a text: neither an eos_token in "
      "tokenizer_config.json nor one of the usual names; --noend_of_text puts "
      "none between documents"));
}

// One that was asked for is read from somewhere.
absl::Status CheckColumn(const TokenizeOptions& options,
                         const std::vector<TextFile>& files) {
  if (options.column == TokenizeOptions().column) return absl::OkStatus();
  for (const TextFile& file : files) {
    if (file.json_lines) return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--column=", options.column, " was given, but ",
                   options.input, " has no .jsonl file: leave it out"));
}

// Token files of another text would be gone without a word.
absl::Status CheckOverwrites(const TokenizeOptions& options) {
  if (options.overwrite) return absl::OkStatus();
  for (const char* name : {"train.bin", "val.bin"}) {
    std::error_code error;
    const std::string path = absl::StrCat(options.output, "/", name);
    if (!std::filesystem::exists(path, error)) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "--output=", options.output, " has a ", name,
        " already: name another folder, or give --overwrite to replace its "
        "token files"));
  }
  return absl::OkStatus();
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
      TokenCount(tokenizer, options.end_of_text),
      options.end_of_text ? tokenizer.end_of_text() : std::nullopt);
}

// Where its end is, a packed text does not say but by being read.
absl::StatusOr<int64_t> TextBytes(const TextFile& file) {
  if (file.packing == Packing::kNone) return file.bytes;
  return UnpackedBytes(file.path, file.packing);
}

// The end of a single text is held out.
absl::StatusOr<ReadDocumentsOptions> ReadingOptions(
    const TokenizeOptions& options, const std::vector<TextFile>& files) {
  ReadDocumentsOptions reading;
  reading.column = options.column;
  if (files.size() == 1 && !files.front().json_lines &&
      options.validation_fraction > 0) {
    TANDEM_ASSIGN_OR_RETURN(const int64_t bytes, TextBytes(files.front()));
    reading.cut_after = static_cast<int64_t>(static_cast<double>(bytes) *
                                             (1 - options.validation_fraction));
  }
  return reading;
}

absl::Status ReadAll(
    const std::vector<TextFile>& files, const ReadDocumentsOptions& reading,
    const std::function<void(const TokenizeProgress&)>& progress,
    TokenizeRun* run) {
  TokenizeProgress now;
  for (const TextFile& file : files) now.all_bytes += file.bytes;
  int64_t before = 0;
  for (const TextFile& file : files) {
    TANDEM_RETURN_IF_ERROR(
        ReadDocuments(file, reading, [&](const DocumentPiece& piece) {
          TANDEM_RETURN_IF_ERROR(run->Take(piece));
          now.bytes = before + piece.bytes_read;
          now.tokens = run->tokens();
          progress(now);
          return absl::OkStatus();
        }));
    before += file.bytes;
  }
  return run->CheckSides();
}

}  // namespace

absl::StatusOr<TokenizeResult> Tokenize(
    const TokenizeOptions& options,
    const std::function<void(const TokenizeProgress&)>& progress) {
  TANDEM_RETURN_IF_ERROR(Check(options));
  std::optional<LongTask> opening;
  opening.emplace(absl::StrCat("reading the tokenizer ", options.tokenizer));
  TANDEM_ASSIGN_OR_RETURN(const auto tokenizer,
                          OpenTokenizer(options.tokenizer));
  opening.reset();
  TANDEM_RETURN_IF_ERROR(CheckEndOfText(options, *tokenizer));
  TANDEM_ASSIGN_OR_RETURN(const TextFiles found, FindTextFiles(options.input));
  TANDEM_RETURN_IF_ERROR(CheckColumn(options, found.files));
  TANDEM_RETURN_IF_ERROR(
      CheckNoOtherTokenizer(options.tokenizer, options.output));
  TANDEM_RETURN_IF_ERROR(CheckOverwrites(options));
  TANDEM_RETURN_IF_ERROR(MakeFolder(options.output));
  TANDEM_ASSIGN_OR_RETURN(TokenWriter train,
                          OpenSide(options, *tokenizer, "train.bin"));
  TANDEM_ASSIGN_OR_RETURN(TokenWriter validation,
                          OpenSide(options, *tokenizer, "val.bin"));
  TANDEM_ASSIGN_OR_RETURN(const ReadDocumentsOptions reading,
                          ReadingOptions(options, found.files));
  TokenizeRun run(options, *tokenizer, std::move(train), std::move(validation),
                  /*is_alone=*/reading.cut_after >= 0);
  TANDEM_RETURN_IF_ERROR(ReadAll(found.files, reading, progress, &run));
  // Once there is something that it has made.
  TANDEM_RETURN_IF_ERROR(SaveTokenizer(options.tokenizer, options.output));
  TANDEM_ASSIGN_OR_RETURN(TokenizeResult result, run.Finish());
  result.vocabulary = TokenCount(*tokenizer, options.end_of_text);
  result.left_out = DescribeLeftOut(found);
  return result;
}

}  // namespace tandem
