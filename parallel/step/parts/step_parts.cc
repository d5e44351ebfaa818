#include "parallel/step/parts/step_parts.h"

#include <memory>
#include <utility>

#include "core/base/status_macros.h"
#include "parallel/step/parts/rows.h"

namespace tandem {
namespace {

constexpr const StepPartRow* kRows[] = {
    &kLossTermsRow,         // notes what the step comes to
    &kScoreRow,             // the same
    &kTiedWeightsRow,       // sums the copies' gradients
    &kLossScaleRow,         // unscales gradients, and has a verdict
    &kGradientNormRow,      // of unscaled gradients
    &kSyncBatchNormRow,     // within forward and backward
    &kBuffersRow,           // made alike before parameters change
    &kOptimizerRow,         // changes them
    &kShardedOptimizerRow,  // sends those that were changed
    &kAveragingRow,         // takes the mean of those that were changed
    &kUpdatesLastRow,       // only plans
    &kTimesRow,             // takes a step when all else has been read of it
};

}  // namespace

absl::Span<const StepPartRow* const> StepPartRows() { return kRows; }

absl::StatusOr<StepPartList> MakeStepParts(MeshModel& model) {
  StepPartList parts;
  for (const StepPartRow* row : kRows) {
    if (row->make == nullptr) continue;
    TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<StepPart> part, row->make(model));
    if (part != nullptr) parts.push_back(std::move(part));
  }
  return parts;
}

}  // namespace tandem
