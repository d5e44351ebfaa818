#include "core/checkpoint/folder/manifest.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/base/dtype_names.h"
#include "core/base/status_macros.h"
#include "core/base/tensor_shard.h"
#include "core/base/torch_status.h"
#include "core/checkpoint/tensor_slice.h"
#include "core/digest/crc32.h"
#include "core/files/file_target.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

constexpr char kBeginning[] = "{\"crc32\":\"";
constexpr char kFormat[] = "tandem.checkpoint_folder";
// Versions: programs that know the first alone refuse the second.
constexpr int64_t kWithoutShards = 1;
constexpr int64_t kWithShards = 2;

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

// [[[BEGIN, LENGTH], ...], ...]: of each dimension its ranges.
absl::StatusOr<TensorShard> ParseRanges(const Json& shard) {
  TANDEM_ASSIGN_OR_RETURN(const Json* dimensions, Array(shard, "ranges"));
  TensorShard all;
  for (const Json& dimension : *dimensions) {
    if (!dimension.is_array()) return Bad("\"ranges\" must hold arrays");
    IndexRanges& ranges = all.emplace_back();
    for (const Json& range : dimension) {
      if (!range.is_array() || range.size() != 2) {
        return Bad("a range must be its begin and its length");
      }
      TANDEM_ASSIGN_OR_RETURN(const int64_t begin, ReadNumber(range[0]));
      TANDEM_ASSIGN_OR_RETURN(const int64_t length, ReadNumber(range[1]));
      ranges.push_back({begin, length});
    }
  }
  return all;
}

// The strides and pieces of a tensor, or of a shard, which has these ranges.
absl::StatusOr<ManifestShard> ParseManifestShard(const Json& json,
                                                 TensorShard ranges,
                                                 size_t files) {
  ManifestShard shard;
  if (json.count("strides") > 0) {
    TANDEM_ASSIGN_OR_RETURN(shard.strides, Numbers(json, "strides"));
  } else {
    shard.strides = RowMajorStrides(ShardSizes(ranges));
  }
  shard.ranges = std::move(ranges);
  TANDEM_ASSIGN_OR_RETURN(const Json* pieces, Array(json, "pieces"));
  for (const Json& each : *pieces) {
    TANDEM_ASSIGN_OR_RETURN(shard.pieces.emplace_back(),
                            ParsePiece(each, files));
  }
  return shard;
}

absl::Status ParseShards(const Json& json, size_t files,
                         ManifestTensor* tensor) {
  TANDEM_ASSIGN_OR_RETURN(const Json* shards, Array(json, "shards"));
  for (const Json& each : *shards) {
    TANDEM_ASSIGN_OR_RETURN(TensorShard ranges, ParseRanges(each));
    // Before sizes are made of them.
    TANDEM_RETURN_IF_ERROR(CheckShard(ranges, tensor->info.sizes));
    TANDEM_ASSIGN_OR_RETURN(tensor->shards.emplace_back(),
                            ParseManifestShard(each, std::move(ranges), files));
  }
  return absl::OkStatus();
}

absl::StatusOr<ManifestTensor> ParseTensor(const Json& json, int64_t version,
                                           size_t files) {
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
  if (version == kWithoutShards || json.count("shards") == 0) {
    TANDEM_ASSIGN_OR_RETURN(
        tensor.shards.emplace_back(),
        ParseManifestShard(json, WholeShard(tensor.info.sizes), files));
  } else {
    TANDEM_RETURN_IF_ERROR(Annotate(ParseShards(json, files, &tensor),
                                    absl::StrCat("tensor ", tensor.info.name)));
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
  if (version != kWithoutShards && version != kWithShards) {
    return Bad(absl::StrCat("it is of version ", version,
                            ", this program reads ", kWithoutShards, " and ",
                            kWithShards));
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
                            ParseTensor(each, version, manifest.files.size()));
    if (!names.insert(tensor.info.name).second) {
      return Bad(absl::StrCat("tensor ", tensor.info.name, " comes twice"));
    }
    manifest.tensors.push_back(std::move(tensor));
  }
  return manifest;
}

// Adds strides and pieces.
void AddPieces(const ManifestShard& shard, Json* json) {
  if (shard.strides != RowMajorStrides(ShardSizes(shard.ranges))) {
    (*json)["strides"] = shard.strides;
  }
  Json& pieces = (*json)["pieces"] = Json::array();
  for (const ManifestPiece& each : shard.pieces) {
    pieces.push_back({{"file", each.file},
                      {"begin", each.begin},
                      {"end", each.end},
                      {"crc32", Hex(each.crc32)}});
    if (!each.name.empty()) pieces.back()["name"] = each.name;
  }
}

Json RangesJson(const TensorShard& shard) {
  Json json = Json::array();
  for (const IndexRanges& ranges : shard) {
    Json& dimension = json.emplace_back(Json::array());
    for (const IndexRange& each : ranges) {
      dimension.push_back(Json::array({each.begin, each.length}));
    }
  }
  return json;
}

Json ToJson(const ManifestTensor& tensor) {
  Json json = {{"name", tensor.info.name},
               {"dtype", std::string(DtypeName(tensor.info.dtype))},
               {"shape", tensor.info.sizes}};
  if (IsInOneShard(tensor)) {
    AddPieces(tensor.shards[0], &json);
    return json;
  }
  Json& shards = json["shards"] = Json::array();
  for (const ManifestShard& each : tensor.shards) {
    shards.push_back({{"ranges", RangesJson(each.ranges)}});
    AddPieces(each, &shards.back());
  }
  return json;
}

uint32_t TextCrc(absl::string_view text) {
  return Crc32(0, text.data(), text.size());
}

}  // namespace

std::string FormatManifest(const Manifest& manifest) {
  const bool has_shards = !std::all_of(manifest.tensors.begin(),
                                       manifest.tensors.end(), IsInOneShard);
  Json json = {{"format", kFormat},
               {"version", has_shards ? kWithShards : kWithoutShards},
               {"mesh", manifest.mesh},
               {"metadata", manifest.metadata},
               {"files", Json::array()},
               {"tensors", Json::array()}};
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

}  // namespace tandem
