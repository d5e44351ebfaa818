// Evaluations of a job on its test set, and what follows from them: which one
// is the best so far, and when there are enough that were no better.

#ifndef TANDEM_TOOLS_TRAINER_EVALUATIONS_H_
#define TANDEM_TOOLS_TRAINER_EVALUATIONS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/trainer/evaluation/history.h"
#include "tools/trainer/evaluation/misclassified.h"
#include "tools/trainer/evaluation/text_sampler.h"
#include "tools/trainer/job/job.h"
#include "tools/trainer/report/reports.h"
#include "tools/trainer/run_report.h"
#include "tools/trainer/starting_point.h"

namespace tandem {

// Where in its training a job is evaluated.
struct EvaluationPoint {
  int64_t epoch = 0;  // from 0
  bool within_epoch = false;
  int64_t step = 0;     // done
  int64_t samples = 0;  // trained on
};

// Every rank has one, and calls the same methods. Not thread-safe.
class Evaluations {
 public:
  // For a job that goes on from `start`: with the evaluations of the job that
  // saved it, where they are needed. InvalidArgument where flags ask for
  // evaluations and there is no test set. `job` and `report` must outlive it.
  // Collective.
  static absl::StatusOr<Evaluations> Start(Job& job, RunReport& report,
                                           const JobStart& start);

  // Evaluates (nothing where there is no test set), shows it, and notes it in
  // --save_dir where that is needed. What it came to is the same on all ranks.
  // Cancelled where a signal asked to stop. Collective.
  absl::Status Run(const EvaluationPoint& point);

  // Steps that were done at the last one, by this job or the rank that it takes
  // over from, and where there is no test set, too; 0: there was none.
  int64_t done() const { return done_; }

  // Whether the last one was the best so far, and --keep_best wants it kept.
  bool keeps_last() const;
  // Whether --early_stopping_patience ends the job.
  bool stops() const;
  // Why, for a person.
  std::string DescribeStop() const;
  // None: nobody asked for it, or there was none.
  std::optional<BestReport> best() const;

  // --sample_every: shows a text. Collective.
  absl::Status ShowSample(int64_t step);

 private:
  Evaluations(Job& job, RunReport& report) : job_(&job), report_(&report) {}

  // Whether any flag needs the earlier ones.
  bool needs_history() const;
  absl::Status ReadHistory(const std::string& folder, int64_t step);
  absl::Status WriteHistory() const;

  Job* job_;
  RunReport* report_;
  EvaluationHistory history_;
  int64_t done_ = 0;
  // Bytes of the text that is evaluated, on rank 0; 0: not known.
  std::optional<int64_t> bytes_;
  // Null: nobody asked for them.
  std::unique_ptr<TextSampler> sampler_;
  std::unique_ptr<MisclassifiedImages> misclassified_;
};

// --eval_only: the evaluation of what a job starts from. Collective.
absl::Status EvaluateOnce(Job& job, RunReport& report,
                          const EvaluationPoint& point);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_EVALUATIONS_H_
