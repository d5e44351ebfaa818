// Choice of the number of microbatches by measured layers: with more of them a
// pipeline's bubble is smaller, and each takes longer for its share of the
// samples. The step of each number is predicted, with the cuts for it. Pure
// functions of what layers take: layer_profile.h measures.

#ifndef TANDEM_PARALLEL_PARTITION_MICROBATCH_CHOICE_H_
#define TANDEM_PARALLEL_PARTITION_MICROBATCH_CHOICE_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "parallel/balance/cut.h"
#include "parallel/partition/partition.h"
#include "parallel/schedule/schedule.h"

namespace tandem {

struct TriedMicrobatches {
  int microbatches = 1;
  // Seconds that a step is predicted to take; none: a device's memory is too
  // small for it.
  std::optional<double> step;
};

struct MicrobatchChoice {
  size_t index = 0;    // of the shortest step, of those the first
  Cuts cuts;           // for it
  ModelOutline model;  // with its profile
  std::vector<TriedMicrobatches> tried;
};

// What the layers take for one microbatch of schedules[index].
using ProfileOfSchedule =
    absl::FunctionRef<absl::StatusOr<ModelProfile>(size_t index)>;

// Cuts `model` for each of `schedules`, the same one for different numbers of
// microbatches, by `rule` and what `profile` says; the profile that `model` may
// have is not read. What is ResourceExhausted does not fit, and all others go
// on; if nothing fits, that is the error. Requires a schedule.
absl::StatusOr<MicrobatchChoice> ChooseMicrobatches(
    const BalanceRule& rule, const ModelOutline& model,
    const std::vector<Schedule>& schedules, const PipelineDevices& devices,
    ProfileOfSchedule profile);

// "8 of 4, 8, 16 (predicted 21.4 ms a step; 4: 24.0, 16: 22.1)", or "2: does
// not fit".
std::string DescribeChoice(const MicrobatchChoice& choice);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_PARTITION_MICROBATCH_CHOICE_H_
