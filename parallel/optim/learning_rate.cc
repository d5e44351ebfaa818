#include "parallel/optim/learning_rate.h"

#include <glog/logging.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "parallel/optim/optimizer_options.h"

namespace tandem {
namespace {

double Cosine(const LearningRateOptions& options, int64_t since_warmup) {
  const int64_t length = options.total_steps - options.warmup_steps;
  const double done = std::min(
      1.0, static_cast<double>(since_warmup) / static_cast<double>(length));
  const double swing = options.learning_rate - options.final_learning_rate;
  return options.final_learning_rate + swing * (1 + std::cos(M_PI * done)) / 2;
}

}  // namespace

absl::Status ValidateLearningRate(const LearningRateOptions& options) {
  TANDEM_RETURN_IF_ERROR(
      CheckNotNegative("learning_rate", options.learning_rate));
  TANDEM_RETURN_IF_ERROR(
      CheckNotNegative("final_learning_rate", options.final_learning_rate));
  TANDEM_RETURN_IF_ERROR(CheckNotNegative("gamma", options.gamma));
  TANDEM_RETURN_IF_ERROR(CheckNotNegative(
      "warmup_steps", static_cast<double>(options.warmup_steps)));
  if (options.decay == LearningRateDecay::kStep && options.decay_steps <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("decay_steps is ", options.decay_steps,
                     "; step decay needs a number >= 1"));
  }
  if (options.decay == LearningRateDecay::kCosine &&
      options.total_steps <= options.warmup_steps) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cosine decay over ", options.total_steps, " steps, of which ",
        options.warmup_steps,
        " are warm-up, leaves none to decay: give a shorter warm-up or more ",
        "steps"));
  }
  return absl::OkStatus();
}

double LearningRateAt(const LearningRateOptions& options, int64_t step) {
  CHECK_GE(step, 0);
  if (step < options.warmup_steps) {
    return options.learning_rate * static_cast<double>(step + 1) /
           static_cast<double>(options.warmup_steps);
  }
  const int64_t since_warmup = step - options.warmup_steps;
  switch (options.decay) {
    case LearningRateDecay::kConstant:
      return options.learning_rate;
    case LearningRateDecay::kStep:
      return options.learning_rate *
             std::pow(options.gamma, since_warmup / options.decay_steps);
    case LearningRateDecay::kCosine:
      return Cosine(options, since_warmup);
  }
  LOG(FATAL) << "no such decay";
}

}  // namespace tandem
