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

#ifndef TANDEM_CORE_CHECKPOINT_FOLDER_MANIFEST_H_
#define TANDEM_CORE_CHECKPOINT_FOLDER_MANIFEST_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/checkpoint/safetensors_header.h"
#include "core/checkpoint/tensor_stream.h"

namespace tandem {

constexpr char kManifestFile[] = "manifest.json";

struct ManifestFile {
  std::string name;  // in the folder
  uint64_t bytes = 0;
  uint32_t crc32 = 0;
};

struct ManifestPiece {
  size_t file = 0;  // which of Manifest::files
  int64_t begin = 0;
  int64_t end = 0;
  uint32_t crc32 = 0;
  // What it is called in the file; empty: as the tensor.
  std::string name = {};
};

struct ManifestTensor {
  TensorInfo info;
  std::vector<int64_t> strides;
  std::vector<ManifestPiece> pieces;
};

struct Manifest {
  std::map<std::string, int64_t> mesh;  // degree by axis
  SafetensorsMetadata metadata;
  std::vector<ManifestFile> files;
  std::vector<ManifestTensor> tensors;
};

// The strides of a row-major tensor.
std::vector<int64_t> RowMajorStrides(const std::vector<int64_t>& sizes);

// InvalidArgument unless pieces make up a tensor that is dense in its strides:
// none overlaps another, none is missing. Names the tensor.
absl::Status CheckTensor(const ManifestTensor& tensor);

// Requires UTF-8.
std::string FormatManifest(const Manifest& manifest);

// Trusts nothing. DataLoss for a text that is not what was written;
// InvalidArgument for one that is no manifest, or of another version.
absl::StatusOr<Manifest> ParseManifest(absl::string_view text);

}  // namespace tandem

#endif  // TANDEM_CORE_CHECKPOINT_FOLDER_MANIFEST_H_
