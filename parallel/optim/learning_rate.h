// Learning-rate schedule: the learning rate of each step.

#ifndef TANDEM_PARALLEL_OPTIM_LEARNING_RATE_H_
#define TANDEM_PARALLEL_OPTIM_LEARNING_RATE_H_

#include <cstdint>

#include "absl/status/status.h"

namespace tandem {

enum class LearningRateDecay {
  kConstant,
  kStep,    // times `gamma` after every `decay_steps` steps (PyTorch's StepLR)
  kCosine,  // half a cosine down to `final_learning_rate`
            // (CosineAnnealingLR; arXiv:1608.03983)
  kLinear,  // a line down to `final_learning_rate` (transformers'
            // get_linear_schedule_with_warmup, whose is 0)
  // Constant, and down to `final_learning_rate` over the last `decay_steps`
  // (WSD; MiniCPM, arXiv:2404.06395, section 4).
  kWarmupStableDecay,
};

// What is left of the way down to the final rate, once a share d of the steps
// that have it is done.
enum class DecayStyle {
  kLinear,  // 1 - d
  kSqrt,    // 1 - sqrt(d) (Megatron-LM's minus_sqrt; arXiv:2405.18392)
  kCosine,  // (1 + cos(pi d)) / 2
};

struct LearningRateOptions {
  double learning_rate = 0.1;  // after the warm-up, before any decay
  // The first steps rise linearly: step s, from 0, has
  // learning_rate * (s + 1) / warmup_steps. The last of them has the full rate.
  int64_t warmup_steps = 0;
  LearningRateDecay decay = LearningRateDecay::kConstant;
  // kStep: steps between two falls, counted from the end of the warm-up;
  // kWarmupStableDecay: the last steps, over which it falls.
  int64_t decay_steps = 0;
  DecayStyle decay_style = DecayStyle::kLinear;  // of kWarmupStableDecay
  double gamma = 0.1;
  // kCosine, kLinear, kWarmupStableDecay: steps of the whole job, warm-up
  // included. Later steps have the final learning rate.
  int64_t total_steps = 0;
  double final_learning_rate = 0;
};

// InvalidArgument, naming the option: a negative or non-finite rate, gamma or
// warm-up; kStep and kWarmupStableDecay without decay_steps; total_steps that
// leave nothing to decay after the warm-up, or fewer than decay_steps.
absl::Status ValidateLearningRate(const LearningRateOptions& options);

// The learning rate of step `step` (>= 0), a function of nothing else, so that
// a resumed job goes on where it stopped. Requires valid options.
double LearningRateAt(const LearningRateOptions& options, int64_t step);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_OPTIM_LEARNING_RATE_H_
