// Manifest of a checkpoint's folder: which files there are, and which elements
// of which tensor lie in each. (The .metadata file of PyTorch's distributed
// checkpoints, in JSON.)
//
//   {"crc32": "0a1b2c3d",                     of all that follows in the file
//    "format": "tandem.checkpoint_folder", "version": 1,
//    "mesh": {"data": 2, "pipe": 2},          that wrote it
//    "metadata": {"tandem.step": "42", ...},  core/checkpoint/checkpoint.h
//    "files": [{"name": "rank-00000.safetensors", "bytes": 123,
//               "crc32": "..."}, ...],
//    "tensors": [{"name": "fc.weight", "dtype": "F32", "shape": [2, 3],
//                 "strides": [3, 1],          row-major where it is left out
//                 "pieces": [{"file": 0, "begin": 0, "end": 6,
//                             "crc32": "...",
//                             "name": "..."}, ...]},    the tensor's where it
//                                                       is left out
//               ...]}
//
// A piece is elements [begin, end) of the tensor in the order of its strides;
// pieces follow each other and make up the tensor. Checksums are gzip's CRC-32:
// of a file's bytes, and of a piece's.
//
// A tensor that ranks had parts of has, in place of strides and pieces,
//
//                 "shards": [{"ranges": [[[0, 2]],          of each dimension
//                                        [[0, 1], [2, 1]]], [BEGIN, LENGTH]
//                             "strides": ..., "pieces": ...}, ...]
//
// whose shards (core/base/tensor_shard.h) have strides and pieces of their own,
// of the tensor of these indices alone; "version" is 2 then.

#ifndef TANDEM_CORE_CHECKPOINT_FOLDER_MANIFEST_H_
#define TANDEM_CORE_CHECKPOINT_FOLDER_MANIFEST_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/checkpoint/folder/manifest_tensor.h"
#include "core/checkpoint/safetensors_header.h"

namespace tandem {

constexpr char kManifestFile[] = "manifest.json";

struct ManifestFile {
  std::string name;  // in the folder
  uint64_t bytes = 0;
  uint32_t crc32 = 0;
};

struct Manifest {
  std::map<std::string, int64_t> mesh;  // degree by axis
  SafetensorsMetadata metadata;
  std::vector<ManifestFile> files;
  std::vector<ManifestTensor> tensors;
};

// Requires UTF-8.
std::string FormatManifest(const Manifest& manifest);

// Trusts nothing. DataLoss for a text that is not what was written;
// InvalidArgument for one that is no manifest, or of another version.
absl::StatusOr<Manifest> ParseManifest(absl::string_view text);

}  // namespace tandem

#endif  // TANDEM_CORE_CHECKPOINT_FOLDER_MANIFEST_H_
