#include "parallel/step/parts/step_parts.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
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
    &kBatchSharesRow,       // options alone
    &kSyncBatchNormRow,     // within forward and backward
    &kReplicasRow,          // options alone
    &kStagesRow,            // options alone
    &kBuffersRow,           // made alike before parameters change
    &kOptimizerRow,         // changes them
    &kShardedOptimizerRow,  // sends those that were changed
    &kAveragingRow,         // takes the mean of those that were changed
    &kEmaRow,               // averages those that were changed over steps
    &kUpdatesLastRow,       // only plans
    &kReproducibleRow,      // options alone
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

void DescribeStepParts(const MeshStrategyOptions& options,
                       NamedValues& values) {
  for (const StepPartRow* row : kRows) {
    if (row->describe != nullptr) row->describe(options, values);
  }
}

const Exclusion* FirstGiven(absl::Span<const Exclusion> others,
                            const MeshStrategyOptions& options) {
  for (const Exclusion& each : others) {
    if (each.is_given != nullptr && each.is_given(options)) return &each;
  }
  return nullptr;
}

absl::Status CheckMeshOptions(const MeshStrategyOptions& options) {
  for (const StepPartRow* row : kRows) {
    if (row->check != nullptr) TANDEM_RETURN_IF_ERROR(row->check(options));
    const Exclusions& excludes = row->exclusions;
    if (excludes.is_on == nullptr || !excludes.is_on(options)) continue;
    const Exclusion* const given = FirstGiven(excludes.others, options);
    if (given == nullptr) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(excludes.begins, given->what, excludes.ends));
  }
  return absl::OkStatus();
}

}  // namespace tandem
