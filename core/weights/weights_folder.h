// Weights folder: tensors written as Hugging Face's libraries write and read
// them: model.safetensors, or shards with an index.

#ifndef TANDEM_CORE_WEIGHTS_WEIGHTS_FOLDER_H_
#define TANDEM_CORE_WEIGHTS_WEIGHTS_FOLDER_H_

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/checkpoint/stored_tensors.h"

namespace tandem {

struct WeightsFolderOptions {
  // The dtype of floating-point values; nothing: as they are stored.
  std::optional<c10::ScalarType> dtype;
  // Bytes of values in one file, unless a single tensor has more:
  // save_pretrained's max_shard_size.
  uint64_t max_shard_bytes = 5000000000;
};

// Tensors that were written with infinite or NaN values, for that is how they
// are stored: "lm_head.weight has 3 NaN and ..." each.
using NonfiniteTensors = std::vector<std::string>;

// Reads the tensors, one at a time, and writes them to one safetensors file,
// which replaces `path` (safetensors.torch.load_file reads it). `dtype`: of
// floating-point values; nothing: as they are stored. OutOfRange, naming the
// tensor, where that dtype cannot hold a finite value.
absl::StatusOr<NonfiniteTensors> WriteWeightsFile(
    const std::string& path, const StoredTensors& tensors,
    std::optional<c10::ScalarType> dtype);

// Whether a folder has weights already, under such names.
bool HasWeights(const std::string& folder);

// Reads the tensors, one at a time, and writes them to `folder`, which is made
// where it is missing. Shards follow the order of `tensors`. The index comes
// last: a folder that was not finished is none. FailedPrecondition for a folder
// that has weights already, which would be read instead, or mixed with these.
absl::StatusOr<NonfiniteTensors> WriteWeightsFolder(
    const std::string& folder, const StoredTensors& tensors,
    const WeightsFolderOptions& options);

}  // namespace tandem

#endif  // TANDEM_CORE_WEIGHTS_WEIGHTS_FOLDER_H_
