// Step form: what one end of a channel tells the other of a step. Two ranks of
// a replica that were given different batches are told so by it, and neither
// waits for what the other will not send.

#ifndef TANDEM_PARALLEL_CHANNEL_STEP_FORM_H_
#define TANDEM_PARALLEL_CHANNEL_STEP_FORM_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "parallel/channel/channel.h"

namespace tandem {

struct StepForm {
  int64_t microbatches = 0;
  int64_t samples = 0;                   // of all of them
  int64_t rows = 0;                      // a digest of ChannelStep::rows
  int64_t identity = 0;                  // ChannelStep's
  std::vector<int64_t> first_rows = {};  // of those, kShownRows at most
};

StepForm StepFormOf(const ChannelStep& step);

// Sizes of microbatches that a message has room for.
constexpr int64_t kShownRows = 16;

// int64 numbers, on the CPU, and back.
constexpr int64_t kStepFormNumbers = 4 + kShownRows;
at::Tensor Encode(const StepForm& form);
StepForm DecodeStepForm(const at::Tensor& numbers);

// InvalidArgument, naming both ranks, where they differ. What one of them does
// not know of its samples is not compared.
absl::Status CheckSameStep(const StepForm& form, int rank,
                           const StepForm& other, int other_rank);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_CHANNEL_STEP_FORM_H_
