#include "datasets/tokenizers/sentence_piece_tokenizer.h"

#include <sentencepiece_processor.h>

#include <cstdint>
#include <cstring>
#include <exception>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "core/base/status_macros.h"
#include "datasets/tokenizers/tokenizer_files.h"

// Declared by the library, in a header that comes with its sources alone.
namespace sentencepiece::logging {
void SetMinLogLevel(int level);
}  // namespace sentencepiece::logging

namespace tandem {
namespace {

// Fields of ModelProto and of NormalizerSpec in sentencepiece_model.proto.
constexpr uint64_t kPieces = 1;
constexpr uint64_t kNormalizer = 3;
constexpr uint64_t kDenormalizer = 5;
constexpr uint64_t kCharsmap = 2;

absl::Status Damaged(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("no sentencepiece model: ", what));
}

// A field of a protobuf message; the contents of one that has a length.
struct Field {
  uint64_t number = 0;
  absl::string_view contents;
};

// Takes numbers and fields off the front of a message
// (https://protobuf.dev/programming-guides/encoding).
class WireReader {
 public:
  explicit WireReader(absl::string_view message) : rest_(message) {}

  bool empty() const { return rest_.empty(); }

  // Nothing where the message is damaged.
  std::optional<Field> Next() {
    const std::optional<uint64_t> tag = Varint();
    if (!tag) return std::nullopt;
    Field field;
    field.number = *tag >> 3;
    switch (*tag & 7) {
      case 0:
        if (!Varint()) return std::nullopt;
        return field;
      case 1:
        if (!Take(8)) return std::nullopt;
        return field;
      case 2: {
        const std::optional<uint64_t> size = Varint();
        if (!size) return std::nullopt;
        const auto contents = Take(*size);
        if (!contents) return std::nullopt;
        field.contents = *contents;
        return field;
      }
      case 5:
        if (!Take(4)) return std::nullopt;
        return field;
      default:
        return std::nullopt;
    }
  }

 private:
  std::optional<uint64_t> Varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      value |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
    return std::nullopt;
  }

  std::optional<absl::string_view> Take(uint64_t size) {
    if (size > rest_.size()) return std::nullopt;
    const absl::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }

  absl::string_view rest_;
};

// A trie as Darts-clone keeps it: units of 4 bytes. A node's children lie at
// its place xor its offset, xor their label; with the label 0, its value.
class Trie {
 public:
  explicit Trie(absl::string_view units) : units_(units) {}

  uint64_t size() const { return units_.size() / 4; }

  // Checks that no place that the library may go to lies outside, and no value
  // beyond `values`.
  absl::Status Check(uint64_t values) const {
    if (units_.empty() || units_.size() % 4 != 0) {
      return Damaged("its character map's trie is no row of 4 bytes each");
    }
    for (uint64_t place = 0; place < size(); ++place) {
      const uint32_t unit = At(place);
      if (unit >> 31 != 0) continue;  // a value
      const uint64_t children = place ^ UnitOffset(unit);
      if ((children | 0xff) >= size()) {
        return Damaged("its character map's trie leads out of itself");
      }
      const bool has_value = (unit >> 8 & 1) != 0;
      if (has_value && (At(children) & 0x7fffffff) >= values) {
        return Damaged("its character map replaces by what is not there");
      }
    }
    return absl::OkStatus();
  }

 private:
  uint32_t At(uint64_t place) const {
    uint32_t unit;
    std::memcpy(&unit, units_.data() + 4 * place, sizeof(unit));
    return unit;
  }

  static uint64_t UnitOffset(uint32_t unit) {
    return uint32_t{unit >> 10} << ((unit & (1u << 9)) >> 6);
  }

  absl::string_view units_;
};

// The trie's size, the trie, and what characters become, each ended by a 0.
absl::Status CheckCharsmap(absl::string_view map) {
  if (map.empty()) return absl::OkStatus();
  uint32_t size = 0;
  if (map.size() < sizeof(size)) return Damaged("its character map is cut off");
  std::memcpy(&size, map.data(), sizeof(size));
  map.remove_prefix(sizeof(size));
  if (size >= map.size()) return Damaged("its character map is cut off");
  if (map.back() != '\0') return Damaged("its character map has no end");
  return Trie(map.substr(0, size)).Check(map.size() - size);
}

absl::Status CheckNormalizer(absl::string_view spec) {
  WireReader reader(spec);
  while (!reader.empty()) {
    const std::optional<Field> field = reader.Next();
    if (!field) return Damaged("its normalizer is cut off");
    if (field->number != kCharsmap) continue;
    const absl::Status status = CheckCharsmap(field->contents);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace

bool IsSentencePiece(absl::string_view model) {
  return !model.empty() && model.front() == (kPieces << 3 | 2);
}

absl::Status CheckSentencePiece(absl::string_view model) {
  WireReader reader(model);
  while (!reader.empty()) {
    const std::optional<Field> field = reader.Next();
    if (!field) return Damaged("the file is cut off, or another kind of file");
    if (field->number != kNormalizer && field->number != kDenormalizer) {
      continue;
    }
    const absl::Status status = CheckNormalizer(field->contents);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

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
