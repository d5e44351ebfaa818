#include "datasets/tokenizers/sentence_piece/model_check.h"

#include <cstdint>
#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"

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

}  // namespace tandem
