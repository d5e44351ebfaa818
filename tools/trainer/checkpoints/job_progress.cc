#include "tools/trainer/checkpoints/job_progress.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/comm/group_agreement.h"
#include "core/precision/loss_scale.h"
#include "datasets/dataset.h"
#include "models/hugging_face/model_config.h"
#include "parallel/strategy/strategy.h"
#include "tools/trainer/checkpoints/progress_changes.h"

namespace tandem {
namespace {

// What decides a job's course beside its model and seed.
std::map<std::string, std::string> OptionsToKeep(const TrainOptions& options) {
  return {{"dataset", options.dataset},
          {"optimizer", options.optimizer},
          {"batch_size", absl::StrCat(options.batch_size)}};
}

// The name of the model; where a folder says what it is, its kind.
std::string ModelName(const Job& job) {
  const bool from_folder =
      job.transformer.has_value() && job.transformer->from_folder;
  return from_folder ? ModelTypeOf(job.transformer->model) : job.options.model;
}

// Every digit; "": it is not scaled.
std::string ScaleText(const TrainingProgress& progress) {
  std::string text;
  for (const auto& [key, value] : progress.grad_scaler) {
    absl::StrAppendFormat(&text, "%s %.17g ", key, value);
  }
  return text;
}

// What must be as it was, for the job to go on with the same bits.
absl::Status CheckSame(const std::string& path, const char* flag,
                       const std::string& then, const std::string& now) {
  if (then == now) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--resume=", path, ": the checkpoint is of a job with --", flag, "=",
      then, ", but this one has --", flag, "=", now, ": give the same"));
}

// By what it computes, where both say so: --model and --init_from may name the
// same in different ways.
absl::Status CheckSameModel(const std::string& path,
                            const TrainingProgress& progress, const Job& job) {
  if (progress.model_config.empty() || !job.transformer.has_value()) {
    return CheckSame(path, "model", progress.model, ModelName(job));
  }
  const auto then = ReadModelConfig(progress.model_config);
  if (then.ok() && WriteModelConfig(then->model) ==
                       WriteModelConfig(job.transformer->model)) {
    return absl::OkStatus();
  }
  const std::string differences =
      then.ok() ? ConfigDifferences(WriteModelConfig(then->model),
                                    WriteModelConfig(job.transformer->model))
                : "";
  return absl::InvalidArgumentError(absl::StrCat(
      "--resume=", path, ": the checkpoint is of a model (", progress.model,
      ") with another configuration than this job's (", ModelName(job), ")",
      differences.empty() ? "" : absl::StrCat(": ", differences),
      ": give the same --model, --init_from, and sizes (--layers, --width, "
      "...)"));
}

}  // namespace

TrainingProgress ProgressOf(const Job& job, const TrainPosition& position) {
  TrainingProgress progress;
  progress.step = position.step;
  progress.epoch = position.sampler.epoch;
  progress.sampler_position = position.sampler.position;
  progress.seed = job.options.seed;
  progress.world_size = job.launch.world_size;
  progress.job = job.id;
  progress.model = ModelName(job);
  if (job.transformer.has_value()) {
    progress.model_config = job.transformer->config;
    progress.generation_config = job.transformer->generation_config;
  }
  progress.options = OptionsToKeep(job.options);
  progress.options.merge(ComparedOptions(job));
  if (job.data.train->tokens()) {
    progress.vocabulary = job.data.train->classes();
  }
  if (const LossScale* scale = job.strategy->loss_scale()) {
    progress.grad_scaler = scale->State();
  }
  return progress;
}

TrainPosition PositionIn(const Job& job, const TrainingProgress& progress) {
  TrainPosition position = PositionOf(progress);
  if (!job.options.eval_only && HasOtherData(progress, job)) {
    position.sampler = {progress.epoch + 1, 0};
  }
  return position;
}

TrainPosition PositionOf(const TrainingProgress& progress) {
  TrainPosition position;
  position.step = progress.step;
  position.sampler.epoch = progress.epoch;
  position.sampler.position = progress.sampler_position;
  return position;
}

absl::Status CheckFits(const std::string& path,
                       const TrainingProgress& progress, const Job& job) {
  const TrainOptions& options = job.options;
  TANDEM_RETURN_IF_ERROR(CheckSameModel(path, progress, job));
  // Its weights alone are wanted.
  if (options.eval_only) return absl::OkStatus();
  TANDEM_RETURN_IF_ERROR(CheckSame(path, "seed", absl::StrCat(progress.seed),
                                   absl::StrCat(options.seed)));
  for (const auto& [name, now] : OptionsToKeep(options)) {
    const auto then = progress.options.find(name);
    if (then == progress.options.end()) continue;
    TANDEM_RETURN_IF_ERROR(CheckSame(path, name.c_str(), then->second, now));
  }
  return CheckData(path, progress, job);
}

absl::Status ResumeScale(const TrainingProgress& progress, LossScale* scale) {
  if (scale == nullptr || progress.grad_scaler.empty()) return absl::OkStatus();
  std::map<std::string, double> state = scale->State();
  for (const char* key : {"scale", "_growth_tracker"}) {
    const auto stored = progress.grad_scaler.find(key);
    if (stored != progress.grad_scaler.end()) state[key] = stored->second;
  }
  return scale->LoadState(state);
}

absl::Status CompareProgress(const Job& job, const std::string& path,
                             const TrainingProgress& progress) {
  const NamedValues mine = {
      {"the step", absl::StrCat(progress.step)},
      {"the epoch", absl::StrCat(progress.epoch)},
      {"the sampler's position", absl::StrCat(progress.sampler_position)},
      {"the seed", absl::StrCat(progress.seed)},
      {"the loss's scale", ScaleText(progress)},
  };
  return Annotate(AgreeInGroup(mine, "checkpoints", *job.world),
                  absl::StrCat("--resume=", path));
}

}  // namespace tandem
