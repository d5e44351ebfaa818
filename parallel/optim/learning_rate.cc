#include "parallel/optim/learning_rate.h"

#include <glog/logging.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "parallel/optim/optimizer_options.h"

namespace tandem {
namespace {

// The name of a decay that ends with the job; empty: it does not.
std::string NameOfEndingDecay(LearningRateDecay decay) {
  switch (decay) {
    case LearningRateDecay::kCosine:
      return "cosine";
    case LearningRateDecay::kLinear:
      return "linear";
    case LearningRateDecay::kWarmupStableDecay:
      return "warmup-stable";
    case LearningRateDecay::kConstant:
    case LearningRateDecay::kStep:
      return "";
  }
  LOG(FATAL) << "no such decay";
}

absl::Status CheckEnd(const LearningRateOptions& options) {
  const std::string name = NameOfEndingDecay(options.decay);
  if (name.empty()) return absl::OkStatus();
  if (options.total_steps <= options.warmup_steps) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, " decay over ", options.total_steps, " steps, of which ",
        options.warmup_steps,
        " are warm-up, leaves none to decay: give a shorter warm-up or more ",
        "steps"));
  }
  const int64_t left = options.total_steps - options.warmup_steps;
  if (options.decay != LearningRateDecay::kWarmupStableDecay ||
      options.decay_steps <= left) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(name, " decay over the last ", options.decay_steps, " of ",
                   options.total_steps, " steps, of which ",
                   options.warmup_steps, " are warm-up: they leave ", left,
                   "; give a shorter warm-up, a shorter decay or more steps"));
}

// What is left of the way down.
double Left(DecayStyle style, double done) {
  switch (style) {
    case DecayStyle::kLinear:
      return 1 - done;
    case DecayStyle::kSqrt:
      return 1 - std::sqrt(done);
    case DecayStyle::kCosine:
      return (1 + std::cos(M_PI * done)) / 2;
  }
  LOG(FATAL) << "no such style of decay";
}

// Step `step` of a way down over the last `length` steps.
double AtTheEnd(const LearningRateOptions& options, DecayStyle style,
                int64_t length, int64_t step) {
  const int64_t since = step - (options.total_steps - length);
  const double done = std::clamp(
      static_cast<double>(since) / static_cast<double>(length), 0.0, 1.0);
  const double swing = options.learning_rate - options.final_learning_rate;
  return options.final_learning_rate + swing * Left(style, done);
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
  const bool has_decay_steps =
      options.decay == LearningRateDecay::kStep ||
      options.decay == LearningRateDecay::kWarmupStableDecay;
  if (has_decay_steps && options.decay_steps <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("decay_steps is ", options.decay_steps,
                     "; this decay needs a number >= 1"));
  }
  return CheckEnd(options);
}

double LearningRateAt(const LearningRateOptions& options, int64_t step) {
  CHECK_GE(step, 0);
  if (step < options.warmup_steps) {
    return options.learning_rate * static_cast<double>(step + 1) /
           static_cast<double>(options.warmup_steps);
  }
  const int64_t since_warmup = step - options.warmup_steps;
  const int64_t after_warmup = options.total_steps - options.warmup_steps;
  switch (options.decay) {
    case LearningRateDecay::kConstant:
      return options.learning_rate;
    case LearningRateDecay::kStep:
      return options.learning_rate *
             std::pow(options.gamma, since_warmup / options.decay_steps);
    case LearningRateDecay::kCosine:
      return AtTheEnd(options, DecayStyle::kCosine, after_warmup, step);
    case LearningRateDecay::kLinear:
      return AtTheEnd(options, DecayStyle::kLinear, after_warmup, step);
    case LearningRateDecay::kWarmupStableDecay:
      return AtTheEnd(options, options.decay_style, options.decay_steps, step);
  }
  LOG(FATAL) << "no such decay";
}

}  // namespace tandem
