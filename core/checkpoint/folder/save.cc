#include "core/checkpoint/folder/save.h"

#include <ATen/core/Tensor.h>
#include <glog/logging.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "core/agreement/agreement.h"
#include "core/base/status_macros.h"
#include "core/base/tensor_shard.h"
#include "core/base/text_fields.h"
#include "core/checkpoint/folder/manifest.h"
#include "core/checkpoint/folder/manifest_tensor.h"
#include "core/checkpoint/safetensors.h"
#include "core/checkpoint/tensor_slice.h"
#include "core/checkpoint/tensor_stream.h"
#include "core/files/atomic_file.h"
#include "core/files/atomic_folder.h"
#include "core/instrument/fault_point.h"

namespace tandem {
namespace {

// The slice of the weight that a part's tensor is, or its slice `of_part`.
TensorSlice PartSlice(const TensorInfo& info, const PartName& name,
                      const TensorSlice& of_part) {
  if (!of_part.shard.empty()) {
    TensorSlice slice = of_part;
    slice.sizes = WholeTensorInfo(info, name).sizes;
    for (IndexRange& rows : slice.shard[0]) rows.begin += name.part->first;
    return slice;
  }
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
constexpr char kShardPrefix[] = "tandem.shard.";

SafetensorsMetadata ShardMetadata(
    const StatePart& part,
    const std::map<std::string, std::string>& tensor_of_slice) {
  SafetensorsMetadata metadata = {{"format", "pt"}};
  for (const auto& [name, slice] : part.slices) {
    metadata[kSlicePrefix + name] = FormatSlice(slice);
    if (!slice.shard.empty()) {
      metadata[kShardPrefix + name] = FormatShard(slice.shard);
    }
    const auto tensor = tensor_of_slice.find(name);
    if (tensor == tensor_of_slice.end()) continue;
    absl::StrAppend(&metadata[kSlicePrefix + name], ";", tensor->second);
  }
  return metadata;
}

// `tensor`: as it is where the slice is called as its tensor is.
bool ParseNamedSlice(const std::string& text, TensorSlice* slice,
                     std::string* tensor) {
  std::vector<std::string> parts =
      absl::StrSplit(text, absl::MaxSplits(';', 3));
  if (parts.size() == 4) {
    *tensor = parts.back();
    parts.pop_back();
  }
  return ParseSlice(absl::StrJoin(parts, ";"), slice);
}

// A tensor as far as it is known, and where its shards are in it.
struct FoundTensor {
  ManifestTensor tensor;
  std::map<TensorShard, size_t> places;
};
using Tensors = std::map<std::string, FoundTensor>;  // by name

absl::Status Bad(const std::string& path, const SafetensorsEntry& entry,
                 absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": tensor ", entry.name, " ", why));
}

int64_t ElementCount(const SafetensorsEntry& entry) {
  return static_cast<int64_t>(entry.bytes() / c10::elementSize(entry.dtype));
}

// What the metadata says of an entry, if it is a slice; `tensor` is its name
// then.
absl::Status FindSlice(const SafetensorsReader& reader, const std::string& path,
                       const SafetensorsEntry& entry, TensorSlice* slice,
                       std::string* tensor) {
  const auto text = reader.metadata().find(kSlicePrefix + entry.name);
  if (text == reader.metadata().end()) return absl::OkStatus();
  *slice = TensorSlice();
  if (!ParseNamedSlice(text->second, slice, tensor)) {
    return Bad(path, entry, absl::StrCat("is no slice: ", text->second));
  }
  const auto shard = reader.metadata().find(kShardPrefix + entry.name);
  if (shard == reader.metadata().end()) return absl::OkStatus();
  if (!ParseShard(shard->second, &slice->shard)) {
    return Bad(path, entry, absl::StrCat("is no shard: ", shard->second));
  }
  return absl::OkStatus();
}

// One piece of one shard of the whole tensor that it belongs to.
absl::StatusOr<ManifestTensor> ShardTensor(const SafetensorsReader& reader,
                                           const std::string& path,
                                           const SafetensorsEntry& entry) {
  if (entry.dtype == c10::ScalarType::Undefined) {
    return Bad(path, entry,
               absl::StrCat("is of dtype ", entry.unread_dtype,
                            ", which no shard has"));
  }
  std::string name = entry.name;
  TensorSlice slice = {entry.shape, RowMajorStrides(entry.shape)};
  TANDEM_RETURN_IF_ERROR(FindSlice(reader, path, entry, &slice, &name));
  ManifestPiece piece;
  piece.begin = slice.begin;
  if (__builtin_add_overflow(slice.begin, ElementCount(entry), &piece.end)) {
    return Bad(path, entry, absl::StrCat("begins at element ", slice.begin));
  }
  piece.crc32 = *reader.StatedChecksum(entry);
  if (name != entry.name) piece.name = entry.name;
  ManifestTensor tensor;
  tensor.info = {name, entry.dtype, slice.sizes};
  tensor.shards.push_back(
      ManifestShard{HeldShard(slice), slice.strides, {std::move(piece)}});
  return tensor;
}

absl::Status AddPiece(const std::string& path, const SafetensorsEntry& entry,
                      ManifestTensor tensor, size_t file, Tensors* tensors) {
  ManifestShard& shard = tensor.shards[0];
  shard.pieces[0].file = file;
  FoundTensor& found = (*tensors)[tensor.info.name];
  ManifestTensor& known = found.tensor;
  if (known.shards.empty()) known.info = tensor.info;
  const auto [at, is_new] =
      found.places.emplace(shard.ranges, known.shards.size());
  if (known.info.dtype != tensor.info.dtype ||
      known.info.sizes != tensor.info.sizes ||
      (!is_new && known.shards[at->second].strides != shard.strides)) {
    return Bad(path, entry, "is another one than other ranks have by its name");
  }
  if (is_new) {
    known.shards.push_back(std::move(shard));
  } else {
    known.shards[at->second].pieces.push_back(shard.pieces[0]);
  }
  return absl::OkStatus();
}

// By where they lie in it, whoever has written them.
void SortShards(ManifestTensor* tensor) {
  std::sort(tensor->shards.begin(), tensor->shards.end(),
            [](const ManifestShard& a, const ManifestShard& b) {
              return a.ranges < b.ranges;
            });
  for (ManifestShard& shard : tensor->shards) {
    std::sort(shard.pieces.begin(), shard.pieces.end(),
              [](const ManifestPiece& a, const ManifestPiece& b) {
                return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
              });
  }
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
    ManifestTensor& tensor = each.second.tensor;
    SortShards(&tensor);
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
