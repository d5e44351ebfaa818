#include "core/checkpoint/folder/stored_folder.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_strided.h>

#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/tensor_shard.h"
#include "core/base/torch_status.h"
#include "core/checkpoint/folder/manifest_tensor.h"
#include "core/checkpoint/read_slice.h"
#include "core/checkpoint/safetensors.h"
#include "core/checkpoint/tensor_slice.h"
#include "core/files/regular_file.h"

namespace tandem {
namespace {

constexpr uint64_t kMaxManifestBytes = uint64_t{1} << 30;

std::string ManifestPath(const std::string& folder) {
  return absl::StrCat(folder, "/", kManifestFile);
}

// Has the piece anything of a shard of the tensor?
bool Needs(const ManifestTensor& tensor, const ManifestShard& shard,
           const ManifestPiece& piece, const TensorShard& wanted) {
  return CommonRun(PieceSlice(tensor, shard, piece), piece.end - piece.begin,
                   wanted)
             .length > 0;
}

// Files of a folder that were opened so far. Not thread-safe.
class OpenFolder {
 public:
  OpenFolder(std::string path, Manifest manifest)
      : path_(std::move(path)),
        manifest_(std::move(manifest)),
        readers_(manifest_.files.size()) {}

  const Manifest& manifest() const { return manifest_; }
  // Verifies what `wanted`, a shard of the tensor, needs; null: all.
  absl::Status Verify(const ManifestTensor& tensor, const TensorShard* wanted);
  absl::StatusOr<at::Tensor> Read(const ManifestTensor& tensor);
  // False, and nothing is done, unless `target` is as the tensor; where that
  // lies in one piece of memory, strides too.
  absl::StatusOr<bool> ReadInto(const ManifestTensor& tensor,
                                const at::Tensor& target);
  // StoredTensor's.
  absl::Status ReadShard(const ManifestTensor& tensor,
                         const TensorShard& wanted, const at::Tensor& target);

 private:
  struct Found {
    SafetensorsReader* reader;
    const SafetensorsEntry* entry;
  };

  std::string FilePath(size_t file) const {
    return absl::StrCat(path_, "/", manifest_.files[file].name);
  }
  absl::Status Damaged(size_t file, const ManifestTensor& tensor,
                       absl::string_view why) const;
  absl::StatusOr<SafetensorsReader*> Open(size_t file,
                                          const ManifestTensor& tensor);
  absl::StatusOr<Found> Find(const ManifestTensor& tensor,
                             const ManifestPiece& piece);
  // All pieces of a shard, in the order of memory.
  absl::Status ReadPieces(const ManifestTensor& tensor,
                          const ManifestShard& shard, void* values);

  const std::string path_;
  const Manifest manifest_;
  std::vector<std::unique_ptr<SafetensorsReader>> readers_;  // null: not yet
};

absl::Status OpenFolder::Damaged(size_t file, const ManifestTensor& tensor,
                                 absl::string_view why) const {
  return absl::DataLossError(absl::StrCat(FilePath(file), " is damaged: ", why,
                                          " (wanted for tensor ",
                                          tensor.info.name, ")"));
}

// What a file is, before any value in it is looked at.
absl::StatusOr<SafetensorsReader*> OpenFolder::Open(
    size_t file, const ManifestTensor& tensor) {
  if (readers_[file] != nullptr) return readers_[file].get();
  const ManifestFile& written = manifest_.files[file];
  const std::string path = FilePath(file);
  std::error_code error;
  const uint64_t bytes = std::filesystem::file_size(path, error);
  if (!error && bytes != written.bytes) {
    return Damaged(
        file, tensor,
        absl::StrCat("it has ", bytes, " bytes, written were ", written.bytes));
  }
  auto reader = SafetensorsReader::Open(path);
  if (absl::IsNotFound(reader.status())) {
    return Damaged(file, tensor, "it is not there");
  }
  if (absl::IsInvalidArgument(reader.status()) ||
      absl::IsDataLoss(reader.status())) {
    return Damaged(file, tensor, reader.status().message());
  }
  TANDEM_RETURN_IF_ERROR(reader.status());
  readers_[file] = *std::move(reader);
  return readers_[file].get();
}

absl::StatusOr<OpenFolder::Found> OpenFolder::Find(const ManifestTensor& tensor,
                                                   const ManifestPiece& piece) {
  TANDEM_ASSIGN_OR_RETURN(SafetensorsReader* const reader,
                          Open(piece.file, tensor));
  const SafetensorsEntry* const entry =
      reader->Find(piece.name.empty() ? tensor.info.name : piece.name);
  const uint64_t bytes = static_cast<uint64_t>(piece.end - piece.begin) *
                         c10::elementSize(tensor.info.dtype);
  if (entry == nullptr || entry->dtype != tensor.info.dtype ||
      entry->bytes() != bytes ||
      reader->StatedChecksum(*entry) != piece.crc32) {
    return Damaged(piece.file, tensor,
                   "it holds other values than were written there: is it "
                   "another checkpoint's, or another rank's?");
  }
  if (reader->StatedChecksum() != manifest_.files[piece.file].crc32) {
    return Damaged(piece.file, tensor, "it is not the file that was written");
  }
  return Found{reader, entry};
}

absl::Status OpenFolder::Verify(const ManifestTensor& tensor,
                                const TensorShard* wanted) {
  for (const ManifestShard& shard : tensor.shards) {
    for (const ManifestPiece& piece : shard.pieces) {
      if (wanted != nullptr && !Needs(tensor, shard, piece, *wanted)) continue;
      TANDEM_ASSIGN_OR_RETURN(const Found found, Find(tensor, piece));
      TANDEM_RETURN_IF_ERROR(found.reader->Verify(*found.entry));
    }
  }
  return absl::OkStatus();
}

absl::Status OpenFolder::ReadPieces(const ManifestTensor& tensor,
                                    const ManifestShard& shard, void* values) {
  char* const begin = static_cast<char*>(values);
  const size_t width = c10::elementSize(tensor.info.dtype);
  for (const ManifestPiece& piece : shard.pieces) {
    TANDEM_ASSIGN_OR_RETURN(const Found found, Find(tensor, piece));
    TANDEM_RETURN_IF_ERROR(found.reader->ReadInto(
        *found.entry, begin + static_cast<size_t>(piece.begin) * width));
  }
  return absl::OkStatus();
}

absl::StatusOr<at::Tensor> OpenFolder::Read(const ManifestTensor& tensor) {
  // Files have as many bytes as the manifest says before memory is taken.
  for (const ManifestShard& shard : tensor.shards) {
    for (const ManifestPiece& piece : shard.pieces) {
      TANDEM_RETURN_IF_ERROR(Find(tensor, piece).status());
    }
  }
  const bool in_one = IsInOneShard(tensor);
  TANDEM_ASSIGN_OR_RETURN(const at::Tensor values,
                          CatchTorchOr(
                              [&] {
                                return at::empty_strided(
                                    tensor.info.sizes,
                                    in_one ? tensor.shards[0].strides
                                           : RowMajorStrides(tensor.info.sizes),
                                    tensor.info.dtype);
                              },
                              tensor.info.name));
  TANDEM_RETURN_IF_ERROR(
      in_one ? ReadPieces(tensor, tensor.shards[0], values.mutable_data_ptr())
             : ReadShard(tensor, WholeShard(tensor.info.sizes), values));
  return values;
}

absl::StatusOr<bool> OpenFolder::ReadInto(const ManifestTensor& tensor,
                                          const at::Tensor& target) {
  const bool in_one = IsInOneShard(tensor);
  if (target.sizes() != tensor.info.sizes ||
      (in_one && target.strides() != tensor.shards[0].strides) ||
      target.scalar_type() != tensor.info.dtype) {
    return false;
  }
  TANDEM_RETURN_IF_ERROR(
      ReadShard(tensor, WholeShard(tensor.info.sizes), target));
  return true;
}

absl::Status OpenFolder::ReadShard(const ManifestTensor& tensor,
                                   const TensorShard& wanted,
                                   const at::Tensor& target) {
  // Nothing is written where anything is damaged.
  TANDEM_RETURN_IF_ERROR(Verify(tensor, &wanted));
  for (const ManifestShard& shard : tensor.shards) {
    if (shard.ranges == wanted && target.strides() == shard.strides) {
      TANDEM_RETURN_IF_ERROR(
          ReadPieces(tensor, shard, target.mutable_data_ptr()));
      continue;
    }
    for (const ManifestPiece& piece : shard.pieces) {
      if (!Needs(tensor, shard, piece, wanted)) continue;
      TANDEM_ASSIGN_OR_RETURN(const Found found, Find(tensor, piece));
      TANDEM_RETURN_IF_ERROR(ReadSlice(*found.reader, *found.entry,
                                       PieceSlice(tensor, shard, piece), wanted,
                                       target));
    }
  }
  return absl::OkStatus();
}

}  // namespace

bool IsCheckpointFolder(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(ManifestPath(path), error);
}

absl::StatusOr<Manifest> ReadManifest(const std::string& folder) {
  const std::string path = ManifestPath(folder);
  TANDEM_ASSIGN_OR_RETURN(const std::string text,
                          ReadShortFile(path, kMaxManifestBytes));
  auto manifest = ParseManifest(text);
  if (manifest.ok()) return manifest;
  return absl::Status(manifest.status().code(),
                      absl::StrCat(path, " is no usable manifest: ",
                                   manifest.status().message()));
}

absl::StatusOr<StoredCheckpoint> OpenCheckpointAt(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) return OpenCheckpoint(path);
  TANDEM_ASSIGN_OR_RETURN(Manifest manifest, ReadManifest(path));
  const auto folder = std::make_shared<OpenFolder>(path, std::move(manifest));
  StoredCheckpoint checkpoint;
  TANDEM_ASSIGN_OR_RETURN(
      checkpoint.progress,
      ProgressOfCheckpoint(path, folder->manifest().metadata));
  for (const ManifestTensor& tensor : folder->manifest().tensors) {
    AddStored(
        {tensor.info, [folder, &tensor] { return folder->Read(tensor); },
         [folder, &tensor] { return folder->Verify(tensor, nullptr); },
         [folder, &tensor](const at::Tensor& target) {
           return folder->ReadInto(tensor, target);
         },
         [folder, &tensor](const TensorShard& shard, const at::Tensor& target) {
           return folder->ReadShard(tensor, shard, target);
         },
         [folder, &tensor](const TensorShard& shard) {
           return folder->Verify(tensor, &shard);
         }},
        &checkpoint);
  }
  return checkpoint;
}

}  // namespace tandem
