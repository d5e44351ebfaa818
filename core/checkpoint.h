// The state of a training job on disk.

#ifndef TANDEM_CORE_CHECKPOINT_H_
#define TANDEM_CORE_CHECKPOINT_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/named_tensors.h"

namespace tandem {

// How far a job has come, and what it needs to know of itself to go on.
struct TrainingProgress {
  int64_t step = 0;   // optimizer steps done
  int64_t epoch = 0;  // the epoch that it is in, from 0
  // Samples of that epoch's order that all ranks together have used.
  int64_t sampler_position = 0;
  uint64_t seed = 0;
  int64_t world_size = 1;  // of the job that saved
  std::string model;       // as --model has it
  // What else decides the model's shape or the job's course: name to value.
  std::map<std::string, std::string> options;
};

struct Checkpoint {
  NamedTensors model;      // parameters and buffers
  NamedTensors optimizer;  // Strategy::OptimizerState()
  TrainingProgress progress;
};

// A checkpoint is one safetensors file. Parameters and buffers stand under
// their own names, so that other tools read them as any file of weights;
// optimizer state under "optimizer." + name. The metadata holds "format": "pt"
// (which Hugging Face's loaders ask for) and, in decimal or as they are,
// "tandem.checkpoint" (the version of this format, 1), "tandem.step",
// "tandem.epoch", "tandem.sampler_position", "tandem.seed",
// "tandem.world_size", "tandem.model", and "tandem.option.NAME" for each
// option.

// Whether the tensor of that name in a checkpoint is optimizer state.
bool IsOptimizerStateName(absl::string_view name);

// Whether a safetensors file with this metadata is a checkpoint.
bool IsCheckpointMetadata(const std::map<std::string, std::string>& metadata);

// Writes the file beside `path` and renames it when it is complete. Errors as
// WriteSafetensors; InvalidArgument for a parameter or buffer whose name begins
// with "optimizer.".
absl::Status SaveCheckpoint(const std::string& path,
                            const Checkpoint& checkpoint);

// Errors as SafetensorsReader::Open; InvalidArgument, naming the path, for a
// file that is no checkpoint, of another version, or whose metadata is damaged.
absl::StatusOr<Checkpoint> LoadCheckpoint(const std::string& path);

}  // namespace tandem

#endif  // TANDEM_CORE_CHECKPOINT_H_
