#include "core/checkpoint/folder/manifest.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/base/dtype_names.h"
#include "core/base/status_macros.h"
#include "core/digest/crc32.h"
#include "core/files/file_target.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

constexpr char kBeginning[] = "{\"crc32\":\"";
constexpr char kFormat[] = "tandem.checkpoint_folder";
constexpr int64_t kVersion = 1;

std::string Hex(uint32_t crc) {
  return absl::StrCat(absl::Hex(crc, absl::kZeroPad8));
}

absl::Status Bad(absl::string_view why) {
  return absl::InvalidArgumentError(why);
}

// A field of a kind that it must have.
using Kind = bool (Json::*)() const noexcept;

absl::StatusOr<const Json*> Field(const Json& object, const char* name,
                                  Kind is_kind, const char* kind) {
  if (!object.is_object()) return Bad("an object was expected");
  const auto found = object.find(name);
  if (found == object.end() || !((*found).*is_kind)()) {
    return Bad(absl::StrCat("\"", name, "\" must be there, ", kind));
  }
  return &*found;
}

absl::StatusOr<const Json*> Array(const Json& object, const char* name) {
  return Field(object, name, &Json::is_array, "an array");
}

absl::StatusOr<std::string> Text(const Json& object, const char* name) {
  TANDEM_ASSIGN_OR_RETURN(const Json* text,
                          Field(object, name, &Json::is_string, "a text"));
  return text->get<std::string>();
}

// At least 0, and at most what an int64_t holds.
absl::StatusOr<int64_t> ReadNumber(const Json& number) {
  if (number.is_number_unsigned() && number.get<uint64_t>() <= INT64_MAX) {
    return static_cast<int64_t>(number.get<uint64_t>());
  }
  return Bad("a number was expected, 0 or more");
}

absl::StatusOr<int64_t> Number(const Json& object, const char* name) {
  TANDEM_ASSIGN_OR_RETURN(
      const Json* number,
      Field(object, name, &Json::is_number_unsigned, "a number of 0 or more"));
  return ReadNumber(*number);
}

absl::StatusOr<std::vector<int64_t>> Numbers(const Json& object,
                                             const char* name) {
  TANDEM_ASSIGN_OR_RETURN(const Json* array, Array(object, name));
  std::vector<int64_t> numbers;
  for (const Json& each : *array) {
    TANDEM_ASSIGN_OR_RETURN(numbers.emplace_back(), ReadNumber(each));
  }
  return numbers;
}

absl::StatusOr<uint32_t> Checksum(const Json& object) {
  TANDEM_ASSIGN_OR_RETURN(const std::string digits, Text(object, "crc32"));
  uint32_t crc = 0;
  if (digits.size() == 8 && absl::SimpleHexAtoi(digits, &crc)) return crc;
  return Bad("\"crc32\" must have eight hexadecimal digits");
}

absl::StatusOr<ManifestFile> ParseFile(const Json& json) {
  ManifestFile file;
  TANDEM_ASSIGN_OR_RETURN(file.name, Text(json, "name"));
  if (!IsFileName(file.name)) return Bad("a file's name must be no path");
  TANDEM_ASSIGN_OR_RETURN(const int64_t bytes, Number(json, "bytes"));
  file.bytes = static_cast<uint64_t>(bytes);
  TANDEM_ASSIGN_OR_RETURN(file.crc32, Checksum(json));
  return file;
}

absl::StatusOr<ManifestPiece> ParsePiece(const Json& json, size_t files) {
  ManifestPiece piece;
  TANDEM_ASSIGN_OR_RETURN(const int64_t file, Number(json, "file"));
  piece.file = static_cast<size_t>(file);
  if (piece.file >= files) return Bad("a piece lies in a file that is unknown");
  TANDEM_ASSIGN_OR_RETURN(piece.begin, Number(json, "begin"));
  TANDEM_ASSIGN_OR_RETURN(piece.end, Number(json, "end"));
  TANDEM_ASSIGN_OR_RETURN(piece.crc32, Checksum(json));
  if (!json.contains("name")) return piece;
  TANDEM_ASSIGN_OR_RETURN(piece.name, Text(json, "name"));
  return piece;
}

absl::StatusOr<ManifestTensor> ParseTensor(const Json& json, size_t files) {
  ManifestTensor tensor;
  TANDEM_ASSIGN_OR_RETURN(tensor.info.name, Text(json, "name"));
  TANDEM_ASSIGN_OR_RETURN(const std::string dtype, Text(json, "dtype"));
  const auto known = DtypeOfName(dtype);
  if (!known.has_value()) {
    return Bad(absl::StrCat("dtype '", dtype, "' of tensor ", tensor.info.name,
                            " is unknown"));
  }
  tensor.info.dtype = *known;
  TANDEM_ASSIGN_OR_RETURN(tensor.info.sizes, Numbers(json, "shape"));
  if (json.count("strides") > 0) {
    TANDEM_ASSIGN_OR_RETURN(tensor.strides, Numbers(json, "strides"));
  } else {
    tensor.strides = RowMajorStrides(tensor.info.sizes);
  }
  TANDEM_ASSIGN_OR_RETURN(const Json* pieces, Array(json, "pieces"));
  for (const Json& each : *pieces) {
    TANDEM_ASSIGN_OR_RETURN(tensor.pieces.emplace_back(),
                            ParsePiece(each, files));
  }
  TANDEM_RETURN_IF_ERROR(CheckTensor(tensor));
  return tensor;
}

absl::StatusOr<SafetensorsMetadata> ParseMetadata(const Json& json) {
  TANDEM_ASSIGN_OR_RETURN(
      const Json* object,
      Field(json, "metadata", &Json::is_object, "an object"));
  SafetensorsMetadata metadata;
  for (const auto& [key, value] : object->items()) {
    if (!value.is_string()) return Bad("\"metadata\" must hold texts");
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

absl::StatusOr<std::map<std::string, int64_t>> ParseMesh(const Json& json) {
  TANDEM_ASSIGN_OR_RETURN(const Json* object,
                          Field(json, "mesh", &Json::is_object, "an object"));
  std::map<std::string, int64_t> mesh;
  for (const auto& [axis, degree] : object->items()) {
    TANDEM_ASSIGN_OR_RETURN(mesh[axis], ReadNumber(degree));
  }
  return mesh;
}

absl::StatusOr<Manifest> ReadManifestJson(const Json& json) {
  TANDEM_ASSIGN_OR_RETURN(const std::string format, Text(json, "format"));
  if (format != kFormat) {
    return Bad(
        absl::StrCat("its format is '", format, "', expected '", kFormat, "'"));
  }
  TANDEM_ASSIGN_OR_RETURN(const int64_t version, Number(json, "version"));
  if (version != kVersion) {
    return Bad(absl::StrCat("it is of version ", version,
                            ", this program reads ", kVersion));
  }
  Manifest manifest;
  TANDEM_ASSIGN_OR_RETURN(manifest.mesh, ParseMesh(json));
  TANDEM_ASSIGN_OR_RETURN(manifest.metadata, ParseMetadata(json));
  TANDEM_ASSIGN_OR_RETURN(const Json* files, Array(json, "files"));
  for (const Json& each : *files) {
    TANDEM_ASSIGN_OR_RETURN(manifest.files.emplace_back(), ParseFile(each));
  }
  TANDEM_ASSIGN_OR_RETURN(const Json* tensors, Array(json, "tensors"));
  std::set<std::string> names;
  for (const Json& each : *tensors) {
    TANDEM_ASSIGN_OR_RETURN(ManifestTensor tensor,
                            ParseTensor(each, manifest.files.size()));
    if (!names.insert(tensor.info.name).second) {
      return Bad(absl::StrCat("tensor ", tensor.info.name, " comes twice"));
    }
    manifest.tensors.push_back(std::move(tensor));
  }
  return manifest;
}

Json ToJson(const ManifestTensor& tensor) {
  Json json = {{"name", tensor.info.name},
               {"dtype", std::string(DtypeName(tensor.info.dtype))},
               {"shape", tensor.info.sizes}};
  if (tensor.strides != RowMajorStrides(tensor.info.sizes)) {
    json["strides"] = tensor.strides;
  }
  Json& pieces = json["pieces"] = Json::array();
  for (const ManifestPiece& each : tensor.pieces) {
    pieces.push_back({{"file", each.file},
                      {"begin", each.begin},
                      {"end", each.end},
                      {"crc32", Hex(each.crc32)}});
    if (!each.name.empty()) pieces.back()["name"] = each.name;
  }
  return json;
}

uint32_t TextCrc(absl::string_view text) {
  return Crc32(0, text.data(), text.size());
}

absl::Status Bad(const ManifestTensor& tensor, absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("tensor ", tensor.info.name, " ", why));
}

// Elements; -1: more bytes than an int64_t counts.
int64_t ElementCount(const TensorInfo& info) {
  int64_t bytes = static_cast<int64_t>(c10::elementSize(info.dtype));
  int64_t elements = 1;
  bool is_empty = false;
  for (const int64_t size : info.sizes) {
    is_empty = is_empty || size == 0;
    const int64_t factor = std::max<int64_t>(size, 1);
    if (__builtin_mul_overflow(bytes, factor, &bytes)) return -1;
    elements *= factor;
  }
  return is_empty ? 0 : elements;
}

// Some order of the dimensions is row-major: no two indices share a place, and
// no place is left out.
bool IsDense(const ManifestTensor& tensor) {
  const std::vector<int64_t>& sizes = tensor.info.sizes;
  std::vector<size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return tensor.strides[a] < tensor.strides[b];
  });
  int64_t expected = 1;
  for (const size_t i : order) {
    if (sizes[i] == 1) continue;
    if (tensor.strides[i] != expected) return false;
    expected *= sizes[i];
  }
  return true;
}

}  // namespace

std::string FormatManifest(const Manifest& manifest) {
  Json json = {{"format", kFormat},      {"version", kVersion},
               {"mesh", manifest.mesh},  {"metadata", manifest.metadata},
               {"files", Json::array()}, {"tensors", Json::array()}};
  for (const ManifestFile& each : manifest.files) {
    json["files"].push_back({{"name", each.name},
                             {"bytes", each.bytes},
                             {"crc32", Hex(each.crc32)}});
  }
  for (const ManifestTensor& each : manifest.tensors) {
    json["tensors"].push_back(ToJson(each));
  }
  std::string rest = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  rest.replace(0, 1, "\",");
  rest += '\n';
  return absl::StrCat(kBeginning, Hex(TextCrc(rest)), rest);
}

absl::StatusOr<Manifest> ParseManifest(absl::string_view text) {
  absl::string_view rest = text;
  uint32_t crc = 0;
  if (!absl::ConsumePrefix(&rest, kBeginning) || rest.size() < 8 ||
      !absl::SimpleHexAtoi(rest.substr(0, 8), &crc)) {
    return absl::DataLossError("it does not begin with its checksum");
  }
  rest.remove_prefix(8);
  if (TextCrc(rest) != crc) {
    return absl::DataLossError(
        absl::StrCat("its checksum is ", Hex(TextCrc(rest)), ", written was ",
                     Hex(crc), " (truncated, changed or edited)"));
  }
  const Json json = Json::parse(text.begin(), text.end(), nullptr,
                                /*allow_exceptions=*/false);
  if (json.is_discarded()) return Bad("it is no JSON");
  return ReadManifestJson(json);
}

std::vector<int64_t> RowMajorStrides(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> strides(sizes.size(), 1);
  for (size_t i = sizes.size(); i-- > 1;) {
    // What does not fit is refused before it is used.
    if (__builtin_mul_overflow(strides[i], std::max<int64_t>(sizes[i], 1),
                               &strides[i - 1])) {
      strides[i - 1] = 0;
    }
  }
  return strides;
}

absl::Status CheckTensor(const ManifestTensor& tensor) {
  const int64_t elements = ElementCount(tensor.info);
  if (elements < 0) return Bad(tensor, "has more than 2^63 bytes");
  if (tensor.strides.size() != tensor.info.sizes.size() ||
      (elements > 0 && !IsDense(tensor))) {
    return Bad(tensor, "has strides that do not fit its shape");
  }
  if (tensor.pieces.empty()) return Bad(tensor, "lies in no file");
  int64_t at = 0;
  for (const ManifestPiece& piece : tensor.pieces) {
    if (piece.begin != at || piece.end < piece.begin) {
      return Bad(tensor, absl::StrCat("has a piece of elements ", piece.begin,
                                      " to ", piece.end, " where one from ", at,
                                      " on was expected"));
    }
    at = piece.end;
  }
  if (at == elements) return absl::OkStatus();
  return Bad(tensor,
             absl::StrCat("has ", elements, " elements, its pieces ", at));
}

}  // namespace tandem
