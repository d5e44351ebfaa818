// Inspection of a file of tensors: what it holds, and whether it is whole.

#ifndef TANDEM_TOOLS_INSPECTION_H_
#define TANDEM_TOOLS_INSPECTION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/checkpoint/safetensors_header.h"

namespace tandem {

struct Inspection {
  std::string path;
  bool is_checkpoint = false;  // of tandem; else any file of tensors
  SafetensorsMetadata metadata;
  std::vector<SafetensorsEntry> tensors;  // by name, optimizer state last
  int64_t weight_tensors = 0;             // without optimizer state
  int64_t weight_values = 0;
  uint64_t bytes = 0;  // of all values
  // WeightsSha256 of all tensors but optimizer state: for a checkpoint, which
  // has a tied weight under each of its names, the number that the job printed
  // when it saved. Else why there is none.
  std::string weights_sha256;
  // Whether the file is as it was written: "hold", "none" (no checksums: of a
  // safetensors file that tandem has not made), or what was changed.
  std::string checksums;
};

// Reads what is at `path` wholly, a tensor at a time: a checkpoint, the newest
// of a folder of checkpoints, or any safetensors file. Errors as
// SafetensorsReader's and OpenCheckpointAt's, but for damage that checksums
// tell, which is part of the answer.
absl::StatusOr<Inspection> Inspect(const std::string& path);

// A table for people: a line for each tensor, totals, metadata, fingerprint.
// What the file says is shown without what a terminal would obey.
std::string InspectionTable(const Inspection& inspection);

// One JSON object on one line: file, checkpoint, metadata, tensors (name,
// dtype, shape, bytes), weight_tensors, weight_values, bytes, weights_sha256,
// checksums.
std::string InspectionJson(const Inspection& inspection);

}  // namespace tandem

#endif  // TANDEM_TOOLS_INSPECTION_H_
