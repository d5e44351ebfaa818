// Which optimizer a job is asked for, at which learning rates, and whether they
// fit each other.

#include <regex>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "tools/trainer/settings/options.h"

namespace tandem {
namespace {

absl::Status CheckClipping(const TrainOptions& options) {
  if (!(options.clip_grad_norm_type > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--clip_grad_norm_type=", options.clip_grad_norm_type,
                     ": must be greater than 0, such as 2, 1 or inf"));
  }
  if (options.clip_grad_norm > 0) return absl::OkStatus();
  if (options.clip_grad_norm_type != 2) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--clip_grad_norm_type=", options.clip_grad_norm_type,
        " says which norm is clipped: give --clip_grad_norm=NORM as well"));
  }
  if (options.error_if_nonfinite) {
    return absl::InvalidArgumentError(
        "--error_if_nonfinite looks at the norm that is clipped: give "
        "--clip_grad_norm=NORM as well");
  }
  return absl::OkStatus();
}

absl::Status CheckWeightDecay(const TrainOptions& options) {
  if (options.no_weight_decay_on.empty()) return absl::OkStatus();
  if (options.weight_decay == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--no_weight_decay_on=", options.no_weight_decay_on,
        " makes exceptions from --weight_decay, which is 0: give both"));
  }
  try {
    const std::regex pattern(options.no_weight_decay_on);
  } catch (const std::regex_error& error) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--no_weight_decay_on=", options.no_weight_decay_on,
        ": not a regular expression (ECMAScript's): ", error.what()));
  }
  return absl::OkStatus();
}

absl::Status CheckSgd(const TrainOptions& options) {
  const std::set<std::string> adams = {"amsgrad", "adam_beta1", "adam_beta2",
                                       "adam_eps"};
  for (const auto& [flag, value] :
       Differing(Describe(options), Describe(TrainOptions()))) {
    if (adams.count(flag) == 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--", flag, "=", ToText(value),
                     " is for adam and adamw, but --optimizer=sgd was given"));
  }
  if (options.nesterov && options.momentum == 0) {
    return absl::InvalidArgumentError(
        "--nesterov needs a momentum, but --momentum=0 was given");
  }
  return absl::OkStatus();
}

absl::Status CheckAdam(const TrainOptions& options) {
  std::string given;
  if (options.nesterov) given = "--nesterov";
  if (options.momentum != TrainOptions().momentum) {
    given = absl::StrCat("--momentum=", options.momentum);
  }
  if (given.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      given, " is sgd's, but --optimizer=", options.optimizer, " was given"));
}

// What the steps of --lr_schedule=step are made of.
absl::Status CheckDecaySteps(const TrainOptions& options) {
  if (options.lr_schedule == "step") {
    if (options.lr_step_size > 0) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "--lr_schedule=step needs --lr_step_size=STEPS, the steps between two "
        "decays");
  }
  std::string given;
  if (options.lr_gamma != TrainOptions().lr_gamma) {
    given = absl::StrCat("--lr_gamma=", options.lr_gamma);
  }
  if (options.lr_step_size > 0) {
    given = absl::StrCat("--lr_step_size=", options.lr_step_size);
  }
  if (given.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(given, " is of --lr_schedule=step, but --lr_schedule=",
                   options.lr_schedule, " was given"));
}

absl::Status CheckLearningRates(const TrainOptions& options) {
  TANDEM_RETURN_IF_ERROR(CheckDecaySteps(options));
  if (options.min_learning_rate > 0 && options.lr_schedule != "cosine") {
    return absl::InvalidArgumentError(
        absl::StrCat("--min_learning_rate=", options.min_learning_rate,
                     " is where --lr_schedule=cosine ends, but --lr_schedule=",
                     options.lr_schedule, " was given"));
  }
  if (options.min_learning_rate > ResolvedLearningRate(options)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--min_learning_rate=", options.min_learning_rate,
                     " is greater than the peak, --learning_rate=",
                     ResolvedLearningRate(options)));
  }
  return absl::OkStatus();
}

}  // namespace

double ResolvedLearningRate(const TrainOptions& options) {
  return options.learning_rate.value_or(options.optimizer == "sgd" ? 0.05
                                                                   : 0.001);
}

absl::Status CheckOptimizer(const TrainOptions& options) {
  TANDEM_RETURN_IF_ERROR(options.optimizer == "sgd" ? CheckSgd(options)
                                                    : CheckAdam(options));
  TANDEM_RETURN_IF_ERROR(CheckLearningRates(options));
  TANDEM_RETURN_IF_ERROR(CheckWeightDecay(options));
  return CheckClipping(options);
}

}  // namespace tandem
