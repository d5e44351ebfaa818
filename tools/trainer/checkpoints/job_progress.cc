#include "tools/trainer/checkpoints/job_progress.h"

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/short_list.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/comm/group_agreement.h"
#include "core/precision/loss_scale.h"
#include "datasets/dataset.h"
#include "models/hugging_face/model_config.h"
#include "models/lora/merged_weights.h"
#include "parallel/step/parts/step_parts.h"
#include "parallel/strategy/strategy.h"

namespace tandem {
namespace {

using Options = std::map<std::string, std::string>;

constexpr char kPlannedSteps[] = "planned_steps";

// Beside those of the state of a step's parts, these may be others in a job
// that goes on.
const std::set<std::string>& ChangeableFlags() {
  static const auto* const flags =
      new std::set<std::string>{"adam_beta1",
                                "adam_beta2",
                                "adam_eps",
                                "augment",
                                "clip_grad_norm",
                                "clip_grad_norm_type",
                                "clip_grad_value",
                                "document_masks",
                                "drop_last",
                                "dropout",
                                "dtype",
                                "image_mean",
                                "image_resize",
                                "image_std",
                                "label_smoothing",
                                "learning_rate",
                                "lora_dropout",
                                "lr_gamma",
                                "lr_schedule",
                                "lr_step_size",
                                "lr_warmup_steps",
                                "lr_wsd_decay_steps",
                                "lr_wsd_decay_style",
                                "min_learning_rate",
                                "muon_adjust_lr",
                                "muon_learning_rate",
                                "muon_momentum",
                                "muon_nesterov",
                                "muon_ns_steps",
                                "nesterov",
                                "no_weight_decay_on",
                                "weight_decay",
                                "z_loss"};
  return *flags;
}

struct Change {
  std::string name, then, now;
};

// Options of `now` that `then` has in another way.
std::vector<Change> Changes(const Options& then, const Options& now) {
  std::vector<Change> changes;
  for (const auto& [name, value] : now) {
    const auto before = then.find(name);
    if (before == then.end() || before->second == value) continue;
    changes.push_back({name, before->second, value});
  }
  return changes;
}

Options Settings(const Job& job, const std::set<std::string>& flags) {
  Options settings;
  for (const auto& [flag, value] : Describe(job.options)) {
    if (flags.count(flag) > 0) settings[flag] = ToText(value);
  }
  return settings;
}

std::string Shown(const std::string& value) {
  return value.empty() ? "none" : value;
}

// "--weight_decay=0.3 (0.1 then)", ...
std::string ChangedFlags(const std::vector<Change>& changes) {
  std::vector<std::string> texts;
  for (const Change& each : changes) {
    texts.push_back(absl::StrCat("--", each.name, "=", each.now, " (",
                                 Shown(each.then), " then)"));
  }
  return ShortList(texts, /*most=*/24);
}

// A line about a schedule that falls to another step; "": none does.
std::string DescribeEnd(const Options& then, const Job& job) {
  const std::string& schedule = job.options.lr_schedule;
  const auto before = then.find(kPlannedSteps);
  const auto schedule_then = then.find("lr_schedule");
  const std::string now = absl::StrCat(job.planned_steps);
  if (!FallsToTheEnd(schedule) || schedule_then == then.end() ||
      schedule_then->second != schedule || before == then.end() ||
      before->second == now) {
    return "";
  }
  return absl::StrCat("note: --lr_schedule=", schedule, " ends at step ", now,
                      " now, and was to end at step ", before->second,
                      ": the learning rate goes on by the new one");
}

// What a checkpoint keeps for these comparisons (TrainingProgress::options):
// settings that may change, by their flags; what the training set is; and by
// how many steps the learning rate goes. Checkpoints that were written before
// some of it was kept are not compared by that.
Options ComparedOptions(const Job& job) {
  Options options = Settings(job, StepStateFlags());
  options.merge(Settings(job, ChangeableFlags()));
  options.insert(job.data.identity.begin(), job.data.identity.end());
  if (job.planned_steps > 0) {
    options[kPlannedSteps] = absl::StrCat(job.planned_steps);
  }
  return options;
}

// Whether the training set is another one.
bool HasOtherData(const TrainingProgress& progress, const Job& job) {
  return !Changes(progress.options, job.data.identity).empty();
}

// With other data there is no going on in the midst of an epoch, whose order is
// another, too: InvalidArgument.
absl::Status CheckSameData(const std::string& path,
                           const TrainingProgress& progress, const Job& job) {
  if (!HasOtherData(progress, job)) return absl::OkStatus();
  int64_t samples = 0;
  const auto before = progress.options.find(kTrainingSamples);
  const bool is_known = before != progress.options.end() &&
                        absl::SimpleAtoi(before->second, &samples);
  // What makes no whole batch may have been left out.
  const int64_t left = samples - progress.sampler_position;
  if (is_known && left < ResolvedBatchSize(job.options)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--resume=", path, ": the checkpoint is of a job in the midst of epoch ",
      progress.epoch + 1, " of another training set (",
      DataDifferences(progress, job),
      "), whose samples come in another order: give the same --data_dir, "
      "--context and --synthetic_samples, or take its weights alone with "
      "--init_from"));
}

// "n_layer is 4 there and 3 here": of two config.json; "" where they are alike.
std::string ConfigDifferences(const std::string& there,
                              const std::string& here) {
  using Json = nlohmann::json;
  const Json then = Json::parse(there, nullptr, /*allow_exceptions=*/false);
  const Json now = Json::parse(here, nullptr, /*allow_exceptions=*/false);
  if (!then.is_object() || !now.is_object()) return "";
  std::set<std::string> keys;
  for (const Json* each : {&then, &now}) {
    for (const auto& item : each->items()) keys.insert(item.key());
  }
  const auto shown = [](const Json& config, const std::string& key) {
    return config.contains(key)
               ? config.at(key).dump(-1, ' ', /*ensure_ascii=*/true,
                                     Json::error_handler_t::replace)
               : std::string("not given");
  };
  std::vector<std::string> differences;
  for (const std::string& key : keys) {
    const std::string saved = shown(then, key), current = shown(now, key);
    if (saved == current) continue;
    differences.push_back(
        absl::StrCat(key, " is ", saved, " there and ", current, " here"));
  }
  return ShortList(differences);
}

// What decides a job's course beside its model and seed.
Options OptionsToKeep(const TrainOptions& options) {
  return {{"dataset", options.dataset},
          {"optimizer", options.optimizer},
          {"batch_size", absl::StrCat(ResolvedBatchSize(options))}};
}

// The loss scale with all digits; "": the loss is not scaled.
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

// "--lora_rank=8 --lora_alpha=16 --lora_on=c_attn", or that there are none.
std::string AdapterFlags(const std::optional<LoraRecord>& record) {
  if (!record) return "no --lora_rank";
  return absl::StrCat("--lora_rank=", record->rank,
                      " --lora_alpha=", record->alpha,
                      " --lora_on=", record->on);
}

// Adapters are a part of what the model computes.
absl::Status CheckSameAdapters(const std::string& path,
                               const TrainingProgress& progress,
                               const Job& job) {
  const auto then = ReadLoraRecord(progress.options);
  TANDEM_RETURN_IF_ERROR(Annotate(then.status(), path));
  const std::string before = AdapterFlags(*then);
  const std::string now = AdapterFlags(job.adapters);
  if (before == now) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--resume=", path, ": the checkpoint is of a job with ",
                   before, ", but this one has ", now,
                   ": give the same, or take its weights alone "
                   "with --init_from"));
}

}  // namespace

std::string ModelName(const Job& job) {
  const bool from_folder =
      job.transformer.has_value() && job.transformer->from_folder;
  return from_folder ? ModelType(job.transformer->model) : job.options.model;
}

TrainingProgress CurrentProgress(const Job& job,
                                 const TrainPosition& position) {
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
  if (job.adapters) progress.options.merge(LoraRecordOptions(*job.adapters));
  if (job.data.train->tokens()) {
    progress.vocabulary = job.data.train->classes();
  }
  if (const LossScale* scale = job.strategy->loss_scale()) {
    progress.grad_scaler = scale->State();
  }
  return progress;
}

TrainPosition PositionIn(const Job& job, const TrainingProgress& progress) {
  TrainPosition position = SavedPosition(progress);
  if (!job.options.eval_only && HasOtherData(progress, job)) {
    position.sampler = {progress.epoch + 1, 0};
  }
  return position;
}

TrainPosition SavedPosition(const TrainingProgress& progress) {
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
  TANDEM_RETURN_IF_ERROR(CheckSameAdapters(path, progress, job));
  // An evaluation needs the weights alone.
  if (options.eval_only) return absl::OkStatus();
  TANDEM_RETURN_IF_ERROR(CheckSame(path, "seed", absl::StrCat(progress.seed),
                                   absl::StrCat(options.seed)));
  for (const auto& [name, now] : OptionsToKeep(options)) {
    const auto then = progress.options.find(name);
    if (then == progress.options.end()) continue;
    TANDEM_RETURN_IF_ERROR(CheckSame(path, name.c_str(), then->second, now));
  }
  return CheckSameData(path, progress, job);
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

std::vector<std::string> DescribeChanges(const TrainingProgress& progress,
                                         const Job& job) {
  Options now = Settings(job, StepStateFlags());
  now.merge(Settings(job, ChangeableFlags()));
  std::vector<std::string> lines;
  const std::vector<Change> changes = Changes(progress.options, now);
  if (!changes.empty()) {
    lines.push_back(absl::StrCat("note: other settings than those of the ",
                                 "checkpoint: ", ChangedFlags(changes)));
  }
  const std::string end = DescribeEnd(progress.options, job);
  if (!end.empty()) lines.push_back(end);
  return lines;
}

std::string DataDifferences(const TrainingProgress& progress, const Job& job) {
  Options data = job.data.identity;
  data["dataset"] = job.options.dataset;
  std::vector<std::string> differences;
  for (const Change& each : Changes(progress.options, data)) {
    differences.push_back(absl::StrCat(each.name, " ", Shown(each.then),
                                       " there, ", Shown(each.now), " here"));
  }
  return ShortList(differences);
}

absl::Status ExplainOptimizerState(const absl::Status& status,
                                   const std::string& path,
                                   const TrainingProgress& progress,
                                   const Job& job) {
  if (!absl::IsInvalidArgument(status)) return status;
  const std::vector<Change> changes =
      Changes(progress.options, Settings(job, StepStateFlags()));
  return absl::InvalidArgumentError(absl::StrCat(
      "--resume=", path, ": ", status.message(), "; ",
      changes.empty()
          ? "give the --optimizer, --momentum and --amsgrad that it was saved "
            "with"
          : absl::StrCat("this job has ", ChangedFlags(changes),
                         ": give what it was saved with")));
}

}  // namespace tandem
