// Checkpoint: the state of a training job on disk.

#ifndef TANDEM_CORE_CHECKPOINT_CHECKPOINT_H_
#define TANDEM_CORE_CHECKPOINT_CHECKPOINT_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/base/tensors.h"
#include "core/checkpoint/safetensors_header.h"
#include "core/checkpoint/stored_tensors.h"

namespace tandem {

// How far a job has come, and what it needs to know of itself to go on.
struct TrainingProgress {
  int64_t step = 0;   // optimizer steps done
  int64_t epoch = 0;  // the epoch that it is in, from 0
  // Samples of that epoch's order that all ranks together have used.
  int64_t sampler_position = 0;
  uint64_t seed = 0;
  int64_t world_size = 1;  // of the job that saved
  // Which job that is, through all its restarts; empty: it was not said.
  std::string job;
  std::string model;  // as --model has it
  // Its config.json, as Hugging Face has it; empty: it is of no kind that has
  // one.
  std::string model_config;
  // The generation_config.json that came with it; empty: none did.
  std::string generation_config;
  // How many tokens the texts have that it is trained on; 0: it was not said.
  int64_t vocabulary = 0;
  // What else decides the model's shape or the job's course: name to value.
  std::map<std::string, std::string> options;
  // State of the loss's scale (core/precision/loss_scale.h), by PyTorch's keys;
  // the same for every layout. Empty: it is not scaled.
  std::map<std::string, double> grad_scaler;
};

// A checkpoint is a folder (core/checkpoint/folder), or one safetensors file.
// Parameters and buffers stand under their own names, so that other tools read
// them as any file of weights; optimizer state under "optimizer." + name. The
// metadata holds "format": "pt"
// (which Hugging Face's loaders ask for) and, in decimal or as they are,
// "tandem.checkpoint" (the version of this format, 1), "tandem.step",
// "tandem.epoch", "tandem.sampler_position", "tandem.seed",
// "tandem.world_size", "tandem.job", "tandem.model_config" and
// "tandem.generation_config" where there is one, as "tandem.vocabulary",
// "tandem.model", "tandem.option.NAME" for each option,
// and "tandem.grad_scaler.KEY" for each number of that state. What was changed
// by accident is noticed (core/checkpoint/safetensors_header.h).

// Whether the tensor of that name in a checkpoint is optimizer state.
bool IsOptimizerStateName(absl::string_view name);
// Without the prefix that it has there. Requires such a name.
std::string OptimizerStateName(absl::string_view name);
// With it.
std::string CheckpointNameOfState(absl::string_view name);

// Whether a safetensors file with this metadata is a checkpoint.
bool IsCheckpointMetadata(const std::map<std::string, std::string>& metadata);

// Under their names in a checkpoint. InvalidArgument for a parameter or buffer
// whose name begins with "optimizer.".
absl::StatusOr<NamedTensors> CheckpointTensors(const NamedTensors& model,
                                               const NamedTensors& optimizer);

SafetensorsMetadata CheckpointMetadata(const TrainingProgress& progress);

// A checkpoint to be read: what it is of, and its tensors, which stay in the
// file until they are asked for. Their `verify` and `read` are not to be called
// by several threads at a time.
struct StoredCheckpoint {
  TrainingProgress progress;
  StoredTensors model;      // parameters and buffers
  StoredTensors optimizer;  // by the names that Strategy::OptimizerState has
};

// Name of the optimizer state ("fc.weight.ema") that is a parameter's average
// over the steps.
constexpr char kAverageState[] = "ema";

// The model as it is evaluated and exported: averages of parameters where the
// checkpoint has them, under the parameters' names, and the model's own tensors
// where it has none. Training goes on from `model` and `optimizer`.
StoredTensors InferenceWeights(const StoredCheckpoint& checkpoint);

// Adds a tensor under its name in a checkpoint to the kind that it is of.
void AddStored(StoredTensor tensor, StoredCheckpoint* checkpoint);

// What CheckpointMetadata made of it. InvalidArgument, naming `path`, for
// metadata that is no checkpoint's, of another version, or damaged.
absl::StatusOr<TrainingProgress> ProgressOfCheckpoint(
    const std::string& path, const SafetensorsMetadata& metadata);

// A checkpoint of one file. Errors as SafetensorsReader::Open; InvalidArgument,
// naming the path, for a file that is no checkpoint, of another version, or
// whose metadata is damaged. Tensors say DataLoss when they are not as they
// were written. A file that has no checksums is taken, with a warning in the
// log.
absl::StatusOr<StoredCheckpoint> OpenCheckpoint(const std::string& path);

}  // namespace tandem

#endif  // TANDEM_CORE_CHECKPOINT_CHECKPOINT_H_
