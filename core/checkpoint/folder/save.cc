#include "core/checkpoint/folder/save.h"

#include <ATen/core/Tensor.h>
#include <glog/logging.h>

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
#include "absl/strings/string_view.h"
#include "core/agreement/agreement.h"
#include "core/base/status_macros.h"
#include "core/base/text_fields.h"
#include "core/checkpoint/folder/manifest.h"
#include "core/checkpoint/safetensors.h"
#include "core/checkpoint/tensor_stream.h"
#include "core/files/atomic_file.h"
#include "core/files/atomic_folder.h"
#include "core/instrument/fault_point.h"

namespace tandem {
namespace {

// The slice of the weight that a part's tensor is, or its slice `of_part`.
TensorSlice PartSlice(const TensorInfo& info, const PartName& name,
                      const TensorSlice& of_part) {
  CHECK(of_part.strides == RowMajorStrides(info.sizes)) << info.name;
  TensorSlice slice;
  slice.sizes = WholeTensorInfo(info, name).sizes;
  slice.strides = RowMajorStrides(slice.sizes);
  slice.begin = name.part->first * slice.strides[0] + of_part.begin;
  return slice;
}

}  // namespace

JoinedState JoinRows(const StatePart& part, const RowParts& parts) {
  JoinedState joined;
  joined.part.slices = part.slices;
  for (const auto& [name, tensor] : part.tensors) {
    const auto found = FindPart(name, parts);
    if (!found) {
      joined.part.tensors.emplace_back(name, tensor);
      continue;
    }
    TensorInfo info = MakeTensorInfo(name, tensor);
    if (!IsDivided(info)) {  // the first part has it for all
      if (found->part->first == 0) {
        joined.part.tensors.emplace_back(found->whole, tensor);
      }
      continue;
    }
    TensorSlice of_part = {info.sizes, tensor.strides().vec(), 0};
    const auto slice = part.slices.find(name);
    if (slice != part.slices.end()) of_part = slice->second;
    info.sizes = of_part.sizes;
    joined.part.slices[name] = PartSlice(info, *found, of_part);
    joined.part.tensors.emplace_back(name, tensor.detach().view({-1}));
    joined.tensor_of_slice[name] = found->whole;
  }
  return joined;
}

namespace {

constexpr char kSlicePrefix[] = "tandem.slice.";

SafetensorsMetadata ShardMetadata(
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

int64_t ElementCount(const SafetensorsEntry& entry) {
  return static_cast<int64_t>(entry.bytes() / c10::elementSize(entry.dtype));
}

// One piece of the whole tensor that it belongs to.
absl::StatusOr<ManifestTensor> ShardTensor(const SafetensorsReader& reader,
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
  tensor.pieces = {{0, begin, begin + ElementCount(entry),
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
                            ShardTensor(*reader, path, entry));
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
  SafetensorsWriter writer(path, ShardMetadata(part, tensor_of_slice));
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

namespace {

// Each rank's text, by rank, where all of them have one.
absl::StatusOr<std::vector<std::string>> Gather(
    const FolderSave& save, const absl::StatusOr<std::string>& mine) {
  if (!save.gather) {
    TANDEM_RETURN_IF_ERROR(mine.status());
    return std::vector<std::string>{*mine};
  }
  std::string told;
  AppendField(EncodeStatus(mine.status()), &told);
  AppendField(mine.value_or(""), &told);
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                          save.gather(told));
  std::vector<std::string> statuses;
  std::vector<std::string> texts;
  for (absl::string_view rest : all) {
    statuses.emplace_back(TakeField(&rest).value_or(""));
    texts.emplace_back(TakeField(&rest).value_or(""));
  }
  TANDEM_RETURN_IF_ERROR(Verdict(statuses));
  return texts;
}

// Whether this rank has written one: "1" or "".
absl::StatusOr<std::string> WriteOwn(const FolderSave& save,
                                     const std::string& folder,
                                     const StatePart& part) {
  if (part.tensors.empty()) return "";
  TANDEM_RETURN_IF_ERROR(
      WriteShard(absl::StrCat(folder, "/", ShardName(save.rank)), part,
                 save.tensor_of_slice, save.may_be_infinite));
  return "1";
}

absl::StatusOr<std::string> Finish(const FolderSave& save,
                                   const std::vector<std::string>& wrote,
                                   AtomicFolder& folder) {
  TANDEM_RETURN_IF_ERROR(FaultPoint("checkpoint_manifest"));
  std::vector<std::string> shards;
  for (size_t rank = 0; rank < wrote.size(); ++rank) {
    if (!wrote[rank].empty())
      shards.push_back(ShardName(static_cast<int>(rank)));
  }
  TANDEM_ASSIGN_OR_RETURN(Manifest manifest,
                          CollectShards(folder.temporary(), shards));
  manifest.mesh = save.mesh;
  manifest.metadata = save.metadata;
  TANDEM_RETURN_IF_ERROR(
      WriteFileAtomically(absl::StrCat(folder.temporary(), "/", kManifestFile),
                          FormatManifest(manifest)));
  TANDEM_RETURN_IF_ERROR(FaultPoint("folder_rename"));
  TANDEM_ASSIGN_OR_RETURN(std::string path, folder.Commit());
  TANDEM_RETURN_IF_ERROR(FaultPoint("folder_renamed"));
  return path;
}

}  // namespace

absl::StatusOr<std::string> SaveFolder(const FolderSave& save,
                                       const StatePart& part) {
  std::unique_ptr<AtomicFolder> folder;
  absl::StatusOr<std::string> mine = "";
  if (save.rank == 0) {
    auto made = AtomicFolder::Create(save.path, save.job);
    if (made.ok()) {
      folder = *std::move(made);
      mine = folder->temporary();
    } else {
      mine = made.status();
    }
  }
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> temporary,
                          Gather(save, mine));
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> wrote,
                          Gather(save, WriteOwn(save, temporary[0], part)));
  mine = "";
  if (save.rank == 0) mine = Finish(save, wrote, *folder);
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> path,
                          Gather(save, mine));
  return path[0];
}

}  // namespace tandem
