// Evaluation: what a model comes to on a data set.

#ifndef TANDEM_TOOLS_TRAINER_EVALUATION_H_
#define TANDEM_TOOLS_TRAINER_EVALUATION_H_

#include "absl/status/statusor.h"
#include "tools/trainer/job/job.h"
#include "tools/trainer/report/report.h"
#include "tools/trainer/report/reports.h"

namespace tandem {

// Evaluates the test set, which must not be empty: each sample counts exactly
// once, on any number of ranks. The same on every rank. Collective.
absl::StatusOr<EvaluationReport> EvaluateTestSet(Job& job, Report& report);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_EVALUATION_H_
