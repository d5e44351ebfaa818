#include "tools/trainer/checkpoints/progress_changes.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/base/some_of.h"
#include "parallel/step/parts/step_flags.h"

namespace tandem {
namespace {

using Options = std::map<std::string, std::string>;

constexpr char kPlannedSteps[] = "planned_steps";

// Beside those of the state of a step's parts, these may be others in a job
// that goes on.
const std::set<std::string>& FlagsOfCourse() {
  static const auto* const flags =
      new std::set<std::string>{"adam_beta1",
                                "adam_beta2",
                                "adam_eps",
                                "clip_grad_norm",
                                "clip_grad_norm_type",
                                "clip_grad_value",
                                "document_masks",
                                "drop_last",
                                "dropout",
                                "dtype",
                                "learning_rate",
                                "lr_gamma",
                                "lr_schedule",
                                "lr_step_size",
                                "lr_warmup_steps",
                                "min_learning_rate",
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
  return SomeOf(texts, /*most=*/24);
}

// A line about a cosine that ends at another step; "": none does.
std::string DescribeCosine(const Options& then, const Job& job) {
  const auto before = then.find(kPlannedSteps);
  const auto schedule = then.find("lr_schedule");
  const std::string now = absl::StrCat(job.planned_steps);
  if (job.options.lr_schedule != "cosine" || schedule == then.end() ||
      schedule->second != "cosine" || before == then.end() ||
      before->second == now) {
    return "";
  }
  return absl::StrCat("note: --lr_schedule=cosine ends at step ", now,
                      " now, and was to end at step ", before->second,
                      ": the learning rate goes on by the new one");
}

}  // namespace

std::map<std::string, std::string> ComparedOptions(const Job& job) {
  Options options = Settings(job, StepStateFlags());
  options.merge(Settings(job, FlagsOfCourse()));
  options.insert(job.data.identity.begin(), job.data.identity.end());
  if (job.planned_steps > 0) {
    options[kPlannedSteps] = absl::StrCat(job.planned_steps);
  }
  return options;
}

std::vector<std::string> DescribeChanges(const TrainingProgress& progress,
                                         const Job& job) {
  Options now = Settings(job, StepStateFlags());
  now.merge(Settings(job, FlagsOfCourse()));
  std::vector<std::string> lines;
  const std::vector<Change> changes = Changes(progress.options, now);
  if (!changes.empty()) {
    lines.push_back(absl::StrCat("note: other settings than those of the ",
                                 "checkpoint: ", ChangedFlags(changes)));
  }
  const std::string cosine = DescribeCosine(progress.options, job);
  if (!cosine.empty()) lines.push_back(cosine);
  return lines;
}

bool HasOtherData(const TrainingProgress& progress, const Job& job) {
  return !Changes(progress.options, job.data.identity).empty();
}

absl::Status CheckData(const std::string& path,
                       const TrainingProgress& progress, const Job& job) {
  if (!HasOtherData(progress, job)) return absl::OkStatus();
  int64_t samples = 0;
  const auto before = progress.options.find(kTrainingSamples);
  const bool is_known = before != progress.options.end() &&
                        absl::SimpleAtoi(before->second, &samples);
  // What makes no whole batch may have been left out.
  const int64_t left = samples - progress.sampler_position;
  if (is_known && left < job.options.batch_size) return absl::OkStatus();
  std::vector<std::string> differences;
  for (const Change& each : Changes(progress.options, job.data.identity)) {
    differences.push_back(absl::StrCat(each.name, " ", Shown(each.then),
                                       " there, ", Shown(each.now), " here"));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--resume=", path, ": the checkpoint is of a job in the midst of epoch ",
      progress.epoch + 1, " of another training set (", SomeOf(differences),
      "), whose samples come in another order: give the same --data_dir, "
      "--context and --synthetic_samples, or take its weights alone with "
      "--init_from"));
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
    const std::string its = shown(then, key), ours = shown(now, key);
    if (its == ours) continue;
    differences.push_back(
        absl::StrCat(key, " is ", its, " there and ", ours, " here"));
  }
  return SomeOf(differences);
}

}  // namespace tandem
