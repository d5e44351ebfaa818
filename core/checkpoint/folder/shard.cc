#include "core/checkpoint/folder/shard.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/base/status_macros.h"
#include "core/checkpoint/safetensors.h"

namespace tandem {
namespace {

constexpr char kSlicePrefix[] = "tandem.slice.";

SafetensorsMetadata MetadataOf(
    const StatePart& part,
    const std::map<std::string, std::string>& tensor_of_slice) {
  SafetensorsMetadata metadata = {{"format", "pt"}};
  for (const auto& [name, slice] : part.slices) {
    metadata[kSlicePrefix + name] =
        absl::StrCat(slice.begin, ";", absl::StrJoin(slice.sizes, ","), ";",
                     absl::StrJoin(slice.strides, ","));
    const auto tensor = tensor_of_slice.find(name);
    if (tensor == tensor_of_slice.end()) continue;
    absl::StrAppend(&metadata[kSlicePrefix + name], ";", tensor->second);
  }
  return metadata;
}

bool ParseNumbers(absl::string_view text, std::vector<int64_t>* numbers) {
  for (const auto word : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    if (!absl::SimpleAtoi(word, &numbers->emplace_back())) return false;
  }
  return true;
}

// `tensor`: as it is where the slice is called as its tensor is.
bool ParseSlice(const std::string& text, TensorSlice* slice,
                std::string* tensor) {
  const std::vector<std::string> parts =
      absl::StrSplit(text, absl::MaxSplits(';', 3));
  if (parts.size() == 4) *tensor = parts[3];
  return parts.size() >= 3 && absl::SimpleAtoi(parts[0], &slice->begin) &&
         ParseNumbers(parts[1], &slice->sizes) &&
         ParseNumbers(parts[2], &slice->strides);
}

// Pieces by the tensor's name, as they come.
using Tensors = std::map<std::string, ManifestTensor>;

absl::Status Bad(const std::string& path, const SafetensorsEntry& entry,
                 absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": tensor ", entry.name, " ", why));
}

int64_t ElementsOf(const SafetensorsEntry& entry) {
  return static_cast<int64_t>(entry.bytes() / c10::elementSize(entry.dtype));
}

// One piece of the whole tensor that it belongs to.
absl::StatusOr<ManifestTensor> TensorOf(const SafetensorsReader& reader,
                                        const std::string& path,
                                        const SafetensorsEntry& entry) {
  if (entry.dtype == c10::ScalarType::Undefined) {
    return Bad(path, entry,
               absl::StrCat("is of dtype ", entry.unread_dtype,
                            ", which no shard has"));
  }
  ManifestTensor tensor = {{entry.name, entry.dtype, entry.shape}, {}, {}};
  tensor.strides = RowMajorStrides(entry.shape);
  int64_t begin = 0;
  const auto text = reader.metadata().find(kSlicePrefix + entry.name);
  if (text != reader.metadata().end()) {
    TensorSlice slice;
    if (!ParseSlice(text->second, &slice, &tensor.info.name)) {
      return Bad(path, entry, absl::StrCat("is no slice: ", text->second));
    }
    tensor.info.sizes = slice.sizes;
    tensor.strides = slice.strides;
    begin = slice.begin;
  }
  tensor.pieces = {{0, begin, begin + ElementsOf(entry),
                    *reader.StatedChecksum(entry),
                    tensor.info.name == entry.name ? "" : entry.name}};
  return tensor;
}

absl::Status AddPiece(const std::string& path, const SafetensorsEntry& entry,
                      ManifestTensor tensor, size_t file, Tensors* tensors) {
  tensor.pieces[0].file = file;
  const auto [at, is_new] = tensors->emplace(tensor.info.name, tensor);
  if (is_new) return absl::OkStatus();
  ManifestTensor& known = at->second;
  if (known.info.dtype != tensor.info.dtype ||
      known.info.sizes != tensor.info.sizes ||
      known.strides != tensor.strides) {
    return Bad(path, entry, "is another one than other ranks have by its name");
  }
  known.pieces.push_back(tensor.pieces[0]);
  return absl::OkStatus();
}

absl::Status AddShard(const std::string& folder, const std::string& name,
                      Manifest* manifest, Tensors* tensors) {
  const std::string path = absl::StrCat(folder, "/", name);
  TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<SafetensorsReader> reader,
                          SafetensorsReader::Open(path));
  if (!reader->StatedChecksum().has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " has no checksums: it is no shard"));
  }
  for (const SafetensorsEntry& entry : reader->entries()) {
    TANDEM_ASSIGN_OR_RETURN(ManifestTensor tensor,
                            TensorOf(*reader, path, entry));
    TANDEM_RETURN_IF_ERROR(AddPiece(path, entry, std::move(tensor),
                                    manifest->files.size(), tensors));
  }
  manifest->files.push_back(
      {name, reader->file_bytes(), *reader->StatedChecksum()});
  return absl::OkStatus();
}

}  // namespace

std::string ShardName(int rank) {
  return absl::StrFormat("rank-%05d.safetensors", rank);
}

absl::Status WriteShard(
    const std::string& path, const StatePart& part,
    const std::map<std::string, std::string>& tensor_of_slice,
    const std::set<std::string>& may_be_infinite) {
  SafetensorsWriter writer(path, MetadataOf(part, tensor_of_slice));
  writer.Require([&](const std::string& name) {
    return may_be_infinite.count(name) == 0;
  });
  TANDEM_RETURN_IF_ERROR(StreamTensors(part.tensors, writer));
  return writer.Commit();
}

absl::StatusOr<Manifest> CollectShards(const std::string& folder,
                                       const std::vector<std::string>& shards) {
  Manifest manifest;
  Tensors tensors;
  for (const std::string& name : shards) {
    TANDEM_RETURN_IF_ERROR(AddShard(folder, name, &manifest, &tensors));
  }
  for (auto& each : tensors) {
    ManifestTensor& tensor = each.second;
    std::sort(tensor.pieces.begin(), tensor.pieces.end(),
              [](const ManifestPiece& a, const ManifestPiece& b) {
                return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
              });
    TANDEM_RETURN_IF_ERROR(CheckTensor(tensor));
    manifest.tensors.push_back(std::move(tensor));
  }
  return manifest;
}

}  // namespace tandem
