#include "datasets/tokenizers/sentence_piece_tokenizer.h"

#include <sentencepiece_processor.h>

#include <exception>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "core/base/status_macros.h"
#include "datasets/tokenizers/sentence_piece/model_check.h"
#include "datasets/tokenizers/tokenizer_files.h"

// Declared by the library, in a header that comes with its sources alone.
namespace sentencepiece::logging {
void SetMinLogLevel(int level);
}  // namespace sentencepiece::logging

namespace tandem {
namespace {

using Processor = sentencepiece::SentencePieceProcessor;

// U+2581, which stands for a space in pieces.
constexpr char kSpace[] = "\xe2\x96\x81";

// The byte of a byte piece, "<0x41>".
std::string PieceByte(const std::string& piece) {
  uint32_t byte = 0;
  if (piece.size() != 6 || !absl::SimpleHexAtoi(piece.substr(1, 4), &byte)) {
    return piece;
  }
  return std::string(1, static_cast<char>(byte));
}

std::string PieceText(const Processor& model, int id) {
  if (model.IsControl(id)) return "";
  if (model.IsUnknown(id)) return model.DecodeIds({id});
  const std::string& piece = model.IdToPiece(id);
  if (model.IsByte(id)) return PieceByte(piece);
  return absl::StrReplaceAll(piece, {{kSpace, " "}});
}

class SentencePieceTokenizer : public Tokenizer {
 public:
  explicit SentencePieceTokenizer(std::unique_ptr<const Processor> model)
      : model_(std::move(model)) {
    for (int id = 0; id < model_->GetPieceSize(); ++id) {
      texts_.push_back(PieceText(*model_, id));
      if (model_->IsControl(id)) {
        special_tokens_.push_back({"", static_cast<uint32_t>(id)});
      }
    }
    if (model_->bos_id() >= 0) {
      prefix_.push_back(static_cast<uint32_t>(model_->bos_id()));
    }
  }

  absl::StatusOr<std::vector<uint32_t>> Encode(
      absl::string_view text, SpecialTokensInText) const override {
    std::vector<int> ids;
    const auto status = model_->Encode(text, &ids);
    if (status.ok()) return std::vector<uint32_t>(ids.begin(), ids.end());
    return absl::InternalError(
        absl::StrCat("sentencepiece: ", status.ToString()));
  }

  std::string Decode(absl::Span<const uint32_t> tokens) const override {
    std::string text;
    for (const uint32_t token : tokens) {
      if (token < texts_.size()) text += texts_[token];
    }
    return text;
  }

  // True of most models, and where a text begins or ends many leave spaces out.
  bool beginning_differs() const override { return true; }

  int64_t vocabulary_size() const override {
    return static_cast<int64_t>(texts_.size());
  }
  std::optional<uint32_t> end_of_text() const override {
    if (model_->eos_id() < 0) return std::nullopt;
    return static_cast<uint32_t>(model_->eos_id());
  }
  const std::vector<SpecialToken>& special_tokens() const override {
    return special_tokens_;
  }
  const std::vector<uint32_t>& prefix() const override { return prefix_; }
  const std::vector<uint32_t>& suffix() const override { return suffix_; }

 private:
  const std::unique_ptr<const Processor> model_;
  std::vector<std::string> texts_;  // by number
  std::vector<SpecialToken> special_tokens_;
  std::vector<uint32_t> prefix_;
  const std::vector<uint32_t> suffix_;
};

// The library throws where it builds a trie of pieces that do not go together.
absl::StatusOr<std::unique_ptr<const Processor>> Load(
    const std::string& contents) {
  TANDEM_RETURN_IF_ERROR(CheckSentencePiece(contents));
  // What it says besides is of no use to a user, and goes to stderr.
  constexpr int kFatal = 3;
  sentencepiece::logging::SetMinLogLevel(kFatal);
  auto model = std::make_unique<Processor>();
  try {
    const auto status = model->LoadFromSerializedProto(contents);
    if (status.ok()) return std::unique_ptr<const Processor>(std::move(model));
    return absl::DataLossError(
        absl::StrCat("no sentencepiece model: ", status.ToString()));
  } catch (const std::exception& error) {
    return absl::DataLossError(
        absl::StrCat("no sentencepiece model: ", error.what()));
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> ReadSentencePiece(
    const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(const std::string contents, ReadFile(path));
  auto model = Load(contents);
  if (!model.ok()) {
    return absl::DataLossError(
        absl::StrCat(path, ": ", model.status().message()));
  }
  std::unique_ptr<Tokenizer> tokenizer =
      std::make_unique<SentencePieceTokenizer>(*std::move(model));
  return tokenizer;
}

}  // namespace tandem
