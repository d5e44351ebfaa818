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
};

struct LearningRateOptions {
  double learning_rate = 0.1;  // after the warm-up, before any decay
  // The first steps rise linearly: step s, from 0, has
  // learning_rate * (s + 1) / warmup_steps. The last of them has the full rate.
  int64_t warmup_steps = 0;
  LearningRateDecay decay = LearningRateDecay::kConstant;
  // kStep: steps between two falls, counted from the end of the warm-up.
  int64_t decay_steps = 0;
  double gamma = 0.1;
  // kCosine: steps of the whole job, warm-up included. Later steps have the
  // final learning rate.
  int64_t total_steps = 0;
  double final_learning_rate = 0;
};

// InvalidArgument, naming the option: a negative or non-finite rate, gamma or
// warm-up; kStep without decay_steps; kCosine whose total_steps leave nothing
// after the warm-up.
absl::Status ValidateLearningRate(const LearningRateOptions& options);

// The learning rate of step `step` (>= 0), a function of nothing else, so that
// a resumed job goes on where it stopped. Requires valid options.
double LearningRateAt(const LearningRateOptions& options, int64_t step);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_OPTIM_LEARNING_RATE_H_
