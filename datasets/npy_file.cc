#include "datasets/npy_file.h"

#include <c10/util/Half.h>
#include <glog/logging.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "core/base/printable.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/digest/crc32.h"

namespace tandem {
namespace {

constexpr absl::string_view kMagic("\x93NUMPY", 6);
constexpr int64_t kMostHeaderBytes = 1 << 16;
constexpr int64_t kMostElements = int64_t{1} << 62;

struct Dtype {
  absl::string_view name;  // without its byte order
  c10::ScalarType dtype;
};

constexpr Dtype kDtypes[] = {
    {"u1", c10::ScalarType::Byte},  {"i4", c10::ScalarType::Int},
    {"i8", c10::ScalarType::Long},  {"f2", c10::ScalarType::Half},
    {"f4", c10::ScalarType::Float}, {"f8", c10::ScalarType::Double},
};

absl::StatusOr<c10::ScalarType> DtypeOfDescription(absl::string_view text) {
  if (text == "|O") {
    return absl::InvalidArgumentError(
        "it has pickled Python objects, which are not read: save an array of "
        "numbers, of one shape for all samples");
  }
  absl::string_view name = text;
  const bool is_big_endian = absl::ConsumePrefix(&name, ">");
  if (!is_big_endian && !absl::ConsumePrefix(&name, "<")) {
    absl::ConsumePrefix(&name, "|");
  }
  for (const Dtype& each : kDtypes) {
    if (each.name != name) continue;
    if (!is_big_endian || name == "u1") return each.dtype;
    return absl::InvalidArgumentError(
        absl::StrCat("its numbers are big-endian (", text,
                     "), which is not read: save array.astype('<", name, "')"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("its numbers are of dtype ", Printable(text),
                   "; read are u1, i4, i8, f2, f4 and f8: save "
                   "array.astype('float32') or array.astype('int64')"));
}

// Python's literal, as much of it as numpy writes.
class DictionaryReader {
 public:
  explicit DictionaryReader(absl::string_view text) : left_(text) {}

  absl::StatusOr<NpyHeader> Read() {
    if (!Take('{')) return NoDictionary();
    while (!Take('}')) {
      TANDEM_RETURN_IF_ERROR(ReadEntry());
      if (Take(',')) continue;
      if (!Take('}')) return NoDictionary();
      break;
    }
    SkipSpace();
    if (!left_.empty() || !dtype_ || !order_is_read_ || !shape_) {
      return NoDictionary();
    }
    return NpyHeader{*dtype_, *shape_};
  }

 private:
  static absl::Status NoDictionary() {
    return absl::DataLossError(
        "damaged: its header is not numpy's, with descr, fortran_order and "
        "shape");
  }

  void SkipSpace() {
    left_.remove_prefix(std::min(left_.find_first_not_of(" \n"), left_.size()));
  }

  bool Take(char byte) {
    SkipSpace();
    return absl::ConsumePrefix(&left_, absl::string_view(&byte, 1));
  }

  bool TakeWord(absl::string_view word) {
    SkipSpace();
    return absl::ConsumePrefix(&left_, word);
  }

  std::optional<absl::string_view> String() {
    for (const char quote : {'\'', '"'}) {
      if (!Take(quote)) continue;
      const size_t end = left_.find(quote);
      if (end == absl::string_view::npos) return std::nullopt;
      const absl::string_view text = left_.substr(0, end);
      left_.remove_prefix(end + 1);
      return text;
    }
    return std::nullopt;
  }

  absl::Status ReadEntry() {
    const std::optional<absl::string_view> key = String();
    if (!key || !Take(':')) return NoDictionary();
    if (*key == "descr" && !dtype_) return ReadDescription();
    if (*key == "fortran_order" && !order_is_read_) return ReadOrder();
    if (*key == "shape" && !shape_) return ReadShape();
    return NoDictionary();
  }

  absl::Status ReadDescription() {
    if (Take('[')) {
      return absl::InvalidArgumentError(
          "its elements have several fields each, which is not read: save "
          "each field as an array");
    }
    const std::optional<absl::string_view> text = String();
    if (!text) return NoDictionary();
    TANDEM_ASSIGN_OR_RETURN(dtype_, DtypeOfDescription(*text));
    return absl::OkStatus();
  }

  absl::Status ReadOrder() {
    order_is_read_ = true;
    if (TakeWord("False")) return absl::OkStatus();
    if (!TakeWord("True")) return NoDictionary();
    return absl::InvalidArgumentError(
        "it is in Fortran's order, which is not read: save "
        "numpy.ascontiguousarray(array)");
  }

  absl::Status ReadShape() {
    if (!Take('(')) return NoDictionary();
    std::vector<int64_t> shape;
    int64_t product = 1;  // of the sizes that are not 0
    while (!Take(')')) {
      SkipSpace();
      const size_t digits =
          std::min(left_.find_first_not_of("0123456789"), left_.size());
      int64_t size = 0;
      if (!absl::SimpleAtoi(left_.substr(0, digits), &size)) {
        return NoDictionary();
      }
      left_.remove_prefix(digits);
      shape.push_back(size);
      if (product >= kMostElements / std::max<int64_t>(size, 1)) {
        return NoDictionary();
      }
      product *= std::max<int64_t>(size, 1);
      if (Take(',')) continue;
      if (!Take(')')) return NoDictionary();
      break;
    }
    shape_ = std::move(shape);
    return absl::OkStatus();
  }

  absl::string_view left_;
  std::optional<c10::ScalarType> dtype_;
  bool order_is_read_ = false;
  std::optional<std::vector<int64_t>> shape_;
};

uint32_t NumberAt(absl::string_view bytes, size_t at, size_t size) {
  uint32_t number = 0;
  for (size_t i = size; i-- > 0;) {
    number = number << 8 | static_cast<uint8_t>(bytes[at + i]);
  }
  return number;
}

// Where the dictionary is in the file.
struct Place {
  int64_t begin = 0;
  int64_t size = 0;
};

absl::StatusOr<Place> FindDictionary(const RegularFile& file) {
  std::string start(12, '\0');
  start.resize(std::min<size_t>(start.size(), file.size()));
  TANDEM_RETURN_IF_ERROR(file.ReadAt(0, start.data(), start.size()));
  if (start.size() < 10 || start.compare(0, kMagic.size(), kMagic) != 0) {
    return absl::DataLossError(
        "no NPY file: it does not begin as numpy.save's do");
  }
  const int version = start[kMagic.size()];
  const size_t width = version == 1 ? 2 : 4;
  const size_t begin = kMagic.size() + 2 + width;
  if (version < 1 || version > 3 || start.size() < begin) {
    return absl::DataLossError(absl::StrCat(
        "version ", version, " of the NPY format: expected 1, 2 or 3"));
  }
  const Place place = {static_cast<int64_t>(begin),
                       NumberAt(start, begin - width, width)};
  if (place.size <= kMostHeaderBytes &&
      place.begin + place.size <= static_cast<int64_t>(file.size())) {
    return place;
  }
  return absl::DataLossError(absl::StrCat("damaged: a header of ", place.size,
                                          " bytes, in a file of ", file.size(),
                                          "; fetch it again"));
}

template <typename From, typename Element>
absl::Status ReadAs(const RegularFile& file, uint64_t offset, int64_t count,
                    Element* to) {
  // Rows are mostly fewer; a whole file comes in parts.
  constexpr int64_t kAtOnce = 1 << 16;
  std::vector<From> values(static_cast<size_t>(std::min(count, kAtOnce)));
  for (int64_t done = 0; done < count; done += kAtOnce) {
    const int64_t part = std::min(count - done, kAtOnce);
    TANDEM_RETURN_IF_ERROR(
        file.ReadAt(offset + static_cast<uint64_t>(done) * sizeof(From),
                    values.data(), static_cast<uint64_t>(part) * sizeof(From)));
    std::transform(values.begin(), values.begin() + part, to + done,
                   [](From value) { return static_cast<Element>(value); });
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<NpyHeader> ReadNpyHeader(absl::string_view dictionary) {
  return DictionaryReader(dictionary).Read();
}

NpyFile::NpyFile(RegularFile file, NpyHeader header, int64_t begin)
    : file_(std::move(file)),
      header_(std::move(header)),
      begin_(begin),
      numel_(1) {
  for (const int64_t size : header_.shape) numel_ *= size;
}

absl::StatusOr<NpyFile> NpyFile::Open(const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(RegularFile file, RegularFile::Open(path));
  const auto place = FindDictionary(file);
  if (!place.ok()) return Annotate(place.status(), path);
  std::string dictionary(static_cast<size_t>(place->size), '\0');
  TANDEM_RETURN_IF_ERROR(file.ReadAt(static_cast<uint64_t>(place->begin),
                                     dictionary.data(), dictionary.size()));
  auto header = ReadNpyHeader(dictionary);
  if (!header.ok()) return Annotate(header.status(), path);
  const int64_t begin = place->begin + place->size;
  const int64_t bytes = static_cast<int64_t>(file.size()) - begin;
  NpyFile opened(std::move(file), *std::move(header), begin);
  const auto width = static_cast<int64_t>(c10::elementSize(opened.dtype()));
  if (bytes % width == 0 && bytes / width == opened.numel()) return opened;
  return absl::DataLossError(
      absl::StrCat(path, ": ", bytes, " bytes behind the header, which says [",
                   absl::StrJoin(opened.shape(), ", "), "] of ", width,
                   " bytes each; fetch it again"));
}

template <typename Element>
absl::Status NpyFile::Read(int64_t first, int64_t count, Element* to) const {
  CHECK(first >= 0 && first <= numel_ && count >= 0 && count <= numel_ - first);
  const auto width = static_cast<int64_t>(c10::elementSize(dtype()));
  const auto offset = static_cast<uint64_t>(begin_ + first * width);
  switch (dtype()) {
    case c10::ScalarType::Byte:
      return ReadAs<uint8_t>(file_, offset, count, to);
    case c10::ScalarType::Int:
      return ReadAs<int32_t>(file_, offset, count, to);
    case c10::ScalarType::Long:
      return ReadAs<int64_t>(file_, offset, count, to);
    case c10::ScalarType::Half:
      return ReadAs<c10::Half>(file_, offset, count, to);
    case c10::ScalarType::Float:
      return ReadAs<float>(file_, offset, count, to);
    default:
      CHECK(dtype() == c10::ScalarType::Double) << dtype();
      return ReadAs<double>(file_, offset, count, to);
  }
}

template absl::Status NpyFile::Read(int64_t, int64_t, float*) const;
template absl::Status NpyFile::Read(int64_t, int64_t, int64_t*) const;

absl::StatusOr<uint32_t> NpyFile::Digest() const {
  constexpr int64_t kBytes = 8192;
  const auto all = static_cast<int64_t>(file_.size());
  const int64_t count = std::min(all, kBytes);
  std::vector<char> bytes(static_cast<size_t>(count));
  uint32_t digest = Crc32(0, &all, sizeof(all));
  for (const int64_t first : {int64_t{0}, (all - count) / 2, all - count}) {
    TANDEM_RETURN_IF_ERROR(
        file_.ReadAt(static_cast<uint64_t>(first), bytes.data(), bytes.size()));
    digest = Crc32(digest, bytes.data(), bytes.size());
  }
  return digest;
}

}  // namespace tandem
