// Rows of the parts of a training step, each of which stands in the file of its
// technique.

#ifndef TANDEM_PARALLEL_STEP_PARTS_ROWS_H_
#define TANDEM_PARALLEL_STEP_PARTS_ROWS_H_

#include "parallel/step/step_part_row.h"

namespace tandem {

extern const StepPartRow kAveragingRow;
extern const StepPartRow kBatchSharesRow;
extern const StepPartRow kBuffersRow;
extern const StepPartRow kEmaRow;
extern const StepPartRow kGradientNormRow;
extern const StepPartRow kLossScaleRow;
extern const StepPartRow kLossTermsRow;
extern const StepPartRow kOptimizerRow;
extern const StepPartRow kReplicasRow;
extern const StepPartRow kReproducibleRow;
extern const StepPartRow kScoreRow;
extern const StepPartRow kShardedOptimizerRow;
extern const StepPartRow kStagesRow;
extern const StepPartRow kSyncBatchNormRow;
extern const StepPartRow kTiedWeightsRow;
extern const StepPartRow kTimesRow;
extern const StepPartRow kUpdatesLastRow;

}  // namespace tandem

#endif  // TANDEM_PARALLEL_STEP_PARTS_ROWS_H_
