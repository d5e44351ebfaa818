#include "core/checkpoint/checkpoint.h"

#include <glog/logging.h>

#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "core/base/status_macros.h"
#include "core/checkpoint/read_slice.h"
#include "core/checkpoint/safetensors.h"
#include "core/checkpoint/tensor_slice.h"

namespace tandem {
namespace {

constexpr char kOptimizerPrefix[] = "optimizer.";
constexpr char kVersionKey[] = "tandem.checkpoint";
constexpr char kVersion[] = "1";
constexpr char kModelConfigKey[] = "tandem.model_config";
constexpr char kGenerationConfigKey[] = "tandem.generation_config";
constexpr char kJobKey[] = "tandem.job";
constexpr char kVocabularyKey[] = "tandem.vocabulary";
constexpr char kOptionPrefix[] = "tandem.option.";
constexpr char kGradScalerPrefix[] = "tandem.grad_scaler.";

absl::StatusOr<std::string> Text(const SafetensorsMetadata& metadata,
                                 const std::string& key) {
  const auto found = metadata.find(key);
  if (found != metadata.end()) return found->second;
  return absl::InvalidArgumentError(absl::StrCat("its metadata lacks ", key));
}

// Empty: there is none.
std::string TextIfAny(const SafetensorsMetadata& metadata,
                      const std::string& key) {
  const auto found = metadata.find(key);
  return found == metadata.end() ? "" : found->second;
}

template <typename Integer>
absl::Status ReadNumber(const SafetensorsMetadata& metadata,
                        const std::string& key, Integer* number) {
  TANDEM_ASSIGN_OR_RETURN(const std::string text, Text(metadata, key));
  if (absl::SimpleAtoi(text, number) && *number >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "its metadata has ", key, " = '", text, "', expected a number >= 0"));
}

absl::Status ReadGradScaler(const SafetensorsMetadata& metadata,
                            std::map<std::string, double>* state) {
  for (const auto& [key, value] : metadata) {
    absl::string_view name = key;
    if (!absl::ConsumePrefix(&name, kGradScalerPrefix)) continue;
    if (absl::SimpleAtod(value, &(*state)[std::string(name)])) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "its metadata has ", key, " = '", value, "', expected a number"));
  }
  return absl::OkStatus();
}

absl::StatusOr<TrainingProgress> ReadProgress(
    const SafetensorsMetadata& metadata) {
  if (!IsCheckpointMetadata(metadata)) {
    return absl::InvalidArgumentError(
        "it holds tensors, but is no checkpoint of a training job");
  }
  TANDEM_ASSIGN_OR_RETURN(const std::string version,
                          Text(metadata, kVersionKey));
  if (version != kVersion) {
    return absl::InvalidArgumentError(
        absl::StrCat("it is of checkpoint version '", version,
                     "', this program reads ", kVersion));
  }
  TrainingProgress progress;
  TANDEM_RETURN_IF_ERROR(ReadNumber(metadata, "tandem.step", &progress.step));
  TANDEM_RETURN_IF_ERROR(ReadNumber(metadata, "tandem.epoch", &progress.epoch));
  TANDEM_RETURN_IF_ERROR(ReadNumber(metadata, "tandem.sampler_position",
                                    &progress.sampler_position));
  TANDEM_RETURN_IF_ERROR(ReadNumber(metadata, "tandem.seed", &progress.seed));
  TANDEM_RETURN_IF_ERROR(
      ReadNumber(metadata, "tandem.world_size", &progress.world_size));
  TANDEM_ASSIGN_OR_RETURN(progress.model, Text(metadata, "tandem.model"));
  progress.model_config = TextIfAny(metadata, kModelConfigKey);
  progress.generation_config = TextIfAny(metadata, kGenerationConfigKey);
  progress.job = TextIfAny(metadata, kJobKey);
  if (!TextIfAny(metadata, kVocabularyKey).empty()) {
    TANDEM_RETURN_IF_ERROR(
        ReadNumber(metadata, kVocabularyKey, &progress.vocabulary));
  }
  for (const auto& [key, value] : metadata) {
    absl::string_view name = key;
    if (absl::ConsumePrefix(&name, kOptionPrefix)) {
      progress.options[std::string(name)] = value;
    }
  }
  TANDEM_RETURN_IF_ERROR(ReadGradScaler(metadata, &progress.grad_scaler));
  return progress;
}

}  // namespace

bool IsOptimizerStateName(absl::string_view name) {
  return absl::StartsWith(name, kOptimizerPrefix);
}

std::string OptimizerStateName(absl::string_view name) {
  CHECK(absl::ConsumePrefix(&name, kOptimizerPrefix)) << name;
  return std::string(name);
}

std::string CheckpointNameOfState(absl::string_view name) {
  return absl::StrCat(kOptimizerPrefix, name);
}

bool IsCheckpointMetadata(const std::map<std::string, std::string>& metadata) {
  return metadata.count(kVersionKey) != 0;
}

SafetensorsMetadata CheckpointMetadata(const TrainingProgress& progress) {
  SafetensorsMetadata metadata = {
      {"format", "pt"},
      {kVersionKey, kVersion},
      {"tandem.step", absl::StrCat(progress.step)},
      {"tandem.epoch", absl::StrCat(progress.epoch)},
      {"tandem.sampler_position", absl::StrCat(progress.sampler_position)},
      {"tandem.seed", absl::StrCat(progress.seed)},
      {"tandem.world_size", absl::StrCat(progress.world_size)},
      {"tandem.model", progress.model},
  };
  if (!progress.model_config.empty()) {
    metadata[kModelConfigKey] = progress.model_config;
  }
  if (!progress.generation_config.empty()) {
    metadata[kGenerationConfigKey] = progress.generation_config;
  }
  if (!progress.job.empty()) metadata[kJobKey] = progress.job;
  if (progress.vocabulary > 0) {
    metadata[kVocabularyKey] = absl::StrCat(progress.vocabulary);
  }
  for (const auto& [name, value] : progress.options) {
    metadata[kOptionPrefix + name] = value;
  }
  for (const auto& [name, value] : progress.grad_scaler) {
    // Every digit: it goes on with the same bits.
    metadata[kGradScalerPrefix + name] = absl::StrFormat("%.17g", value);
  }
  return metadata;
}

absl::StatusOr<NamedTensors> CheckpointTensors(const NamedTensors& model,
                                               const NamedTensors& optimizer) {
  NamedTensors tensors = model;
  for (const auto& each : model) {
    if (IsOptimizerStateName(each.first)) {
      return absl::InvalidArgumentError(
          absl::StrCat("cannot save parameter or buffer ", each.first,
                       ": names that begin with '", kOptimizerPrefix,
                       "' are kept for optimizer state"));
    }
  }
  for (const auto& [name, tensor] : optimizer) {
    tensors.emplace_back(CheckpointNameOfState(name), tensor);
  }
  return tensors;
}

StoredTensors InferenceWeights(const StoredCheckpoint& checkpoint) {
  const std::string suffix = absl::StrCat(".", kAverageState);
  std::map<std::string, const StoredTensor*> averages;  // by parameter
  for (const StoredTensor& each : checkpoint.optimizer) {
    absl::string_view name = each.info.name;
    if (absl::ConsumeSuffix(&name, suffix)) averages[std::string(name)] = &each;
  }
  StoredTensors weights;
  for (const StoredTensor& each : checkpoint.model) {
    const auto found = averages.find(each.info.name);
    StoredTensor used = found == averages.end() ? each : *found->second;
    used.info.name = each.info.name;
    weights.Add(std::move(used));
  }
  return weights;
}

void AddStored(StoredTensor tensor, StoredCheckpoint* checkpoint) {
  absl::string_view name = tensor.info.name;
  const bool is_state = absl::ConsumePrefix(&name, kOptimizerPrefix);
  tensor.info.name = std::string(name);
  (is_state ? checkpoint->optimizer : checkpoint->model).Add(std::move(tensor));
}

absl::StatusOr<TrainingProgress> ProgressOfCheckpoint(
    const std::string& path, const SafetensorsMetadata& metadata) {
  auto progress = ReadProgress(metadata);
  if (progress.ok()) return progress;
  return absl::InvalidArgumentError(absl::StrCat(
      "cannot resume from ", path, ": ", progress.status().message()));
}

namespace {

absl::StatusOr<bool> ReadRowMajor(SafetensorsReader& reader,
                                  const SafetensorsEntry& entry,
                                  const at::Tensor& target) {
  if (!target.is_contiguous() || target.sizes() != entry.shape ||
      target.scalar_type() != entry.dtype) {
    return false;
  }
  TANDEM_RETURN_IF_ERROR(reader.Verify(entry));
  TANDEM_RETURN_IF_ERROR(reader.ReadInto(entry, target.mutable_data_ptr()));
  return true;
}

}  // namespace

absl::StatusOr<StoredCheckpoint> OpenCheckpoint(const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(std::shared_ptr<SafetensorsReader> reader,
                          SafetensorsReader::Open(path));
  StoredCheckpoint checkpoint;
  TANDEM_ASSIGN_OR_RETURN(checkpoint.progress,
                          ProgressOfCheckpoint(path, reader->metadata()));
  LOG_IF(WARNING, !reader->has_checksums())
      << path << " has no checksums: whether it was changed since it was "
      << "written cannot be told";
  for (const SafetensorsEntry& entry : reader->entries()) {
    AddStored(
        {{entry.name, entry.dtype, entry.shape},
         [reader, &entry] { return reader->Read(entry); },
         [reader, &entry] { return reader->Verify(entry); },
         [reader, &entry](const at::Tensor& target) {
           return ReadRowMajor(*reader, entry, target);
         },
         [reader, &entry](const TensorShard& shard, const at::Tensor& target) {
           return ReadSlice(*reader, entry,
                            SliceOfShard(entry.shape, WholeShard(entry.shape)),
                            shard, target);
         }},
        &checkpoint);
  }
  return checkpoint;
}

}  // namespace tandem
