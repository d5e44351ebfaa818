// Stored weights: a safetensors file of any maker, a state_dict that torch.save
// wrote (core/pytorch_file), or a folder of them as Hugging Face's libraries
// write it: model.safetensors, or several files (shards) and
// model.safetensors.index.json, which says what is in which; or
// pytorch_model.bin and its like.

#ifndef TANDEM_CORE_WEIGHTS_STORED_WEIGHTS_H_
#define TANDEM_CORE_WEIGHTS_STORED_WEIGHTS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/checkpoint/safetensors_header.h"
#include "core/checkpoint/stored_tensors.h"

namespace tandem {

constexpr char kWeightsFile[] = "model.safetensors";
constexpr char kWeightsIndexFile[] = "model.safetensors.index.json";
constexpr char kPyTorchWeightsFile[] = "pytorch_model.bin";
constexpr char kPyTorchIndexFile[] = "pytorch_model.bin.index.json";

struct StoredWeights {
  // By the names that they have there. Files stay open; a value is read when it
  // is asked for, and nothing but headers before. Not to be read by several
  // threads at a time.
  StoredTensors tensors;
  std::vector<std::string> files;  // paths
  SafetensorsMetadata metadata;    // of the first file
};

// Opens a file, or a folder: its model.safetensors where that is there (as
// transformers does), else its shards, else those of PyTorch. The header of
// every file is read, and its sizes and offsets are compared with the file's
// length.
//
// Trusts nothing. Beside SafetensorsReader::Open's and OpenPyTorchFile's
// errors: NotFound for a folder without any, and for a shard that is not there;
// InvalidArgument for an index that is none, that names a file outside the
// folder, a tensor that its file lacks, and for a tensor that a shard has and
// the index does not know there (which is so of one that comes in two shards).
absl::StatusOr<StoredWeights> OpenWeights(const std::string& path);

}  // namespace tandem

#endif  // TANDEM_CORE_WEIGHTS_STORED_WEIGHTS_H_
