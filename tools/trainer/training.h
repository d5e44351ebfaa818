// Training: a job that trains, where it stands, and what is done around its
// steps and epochs. The loop itself: tools/train.cc.

#ifndef TANDEM_TOOLS_TRAINER_TRAINING_H_
#define TANDEM_TOOLS_TRAINER_TRAINING_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/model/batch.h"
#include "core/program/long_task.h"
#include "tools/trainer/checkpoints/job_progress.h"
#include "tools/trainer/checkpoints/saver.h"
#include "tools/trainer/evaluations.h"
#include "tools/trainer/job/job.h"
#include "tools/trainer/replacement/replacement.h"
#include "tools/trainer/run_report.h"
#include "tools/trainer/starting_point.h"
#include "tools/trainer/step_trace.h"
#include "tools/trainer/stop_agreement.h"
#include "tools/trainer/training_set.h"

namespace tandem {

// All ranks of a job call the same methods at the same steps: most of them are
// collective. Not thread-safe.
class Training {
 public:
  // From where the job starts: a checkpoint, given weights or the beginning;
  // with `replacement` as that has it. All must outlive it.
  static absl::StatusOr<std::unique_ptr<Training>> Start(
      Job& job, RunReport& report, Replacement* replacement);

  // The epoch in which it stands.
  int64_t epoch() const { return position_.sampler.epoch; }
  // Whether there are steps to do, or those that were done are to be evaluated.
  bool goes_on() const { return !done() || evaluation_is_due(); }

  // Whether --early_stopping_patience ends the job, in the midst of an epoch,
  // too.
  bool stops_early() const { return evaluations_.stops(); }

  // Begins `epoch`, or goes on in it. The steps of it that are left.
  absl::StatusOr<int64_t> StartEpoch(int64_t epoch);
  // This rank's share of the next step's batch.
  absl::StatusOr<Batch> NextBatch();

  // Before the strategy has a step's batch, and when it has been submitted.
  // Here stands whatever looks on as a step is done: its report, the trace of
  // some steps, what fault points and the flight record know of it, and a
  // replacement, which can undo it.
  absl::StatusOr<RunReport::Step> BeginStep(int64_t epoch);
  absl::Status EndStep(const RunReport::Step& step);

  // --check_replicas_every: DataLoss where replicas are no longer alike.
  absl::Status CheckReplicasIfDue();
  // --save_every: a checkpoint of steps that have come to something, and of
  // replicas that are alike.
  absl::Status SaveIfDue();
  // --eval_every, but for the end of an epoch, which has its own evaluation.
  absl::Status EvaluateIfDue(int64_t epoch);
  // --sample_every.
  absl::Status ShowSampleIfDue();
  // Cancelled where a signal asked to stop: after a step that all ranks stop
  // after, with a checkpoint of it. Workers of servers take steps of their own,
  // and stop alone. Aborted where a rank waits to be let in.
  absl::Status StopIfAsked();

  // Saves where --save_every_epochs or the job's end asks for it, and
  // evaluates.
  absl::Status EndEpoch(int64_t epoch);

  // When the loop has ended, `trained` being what it came to: completes what is
  // being written, says what the job came to, and keeps what there is to go on
  // with for the others where their generation ends.
  absl::Status Finish(const absl::Status& trained);

 private:
  Training(Job& job, RunReport& report, Replacement* replacement,
           TrainingSet set, Evaluations evaluations, const JobStart& start);

  bool done() const {
    return position_.step >= set_.steps_in_all() || stops_early();
  }
  // Did a generation, or the job that saved a checkpoint, end before it scored
  // what its steps came to? Of a checkpoint nobody can tell: it is written
  // before.
  bool evaluation_is_due() const {
    return position_.step > evaluations_.done();
  }
  bool is_saved_after(int64_t epoch) const;

  absl::Status Evaluate(int64_t epoch, bool within_epoch);
  absl::Status EvaluateIfNothingIsLeft();
  absl::Status LinkBestCheckpoint();
  absl::Status CheckReplicas() const;
  absl::Status Save();
  absl::Status AdmitIfAsked();
  absl::Status EndTrace();
  std::string DescribeSaved() const;
  absl::Status FinishSaving(const absl::Status& trained);
  absl::Status Summarise(const absl::Status& trained);

  Job& job_;
  RunReport& report_;
  Replacement* const replacement_;  // null: without one
  TrainingSet set_;
  Evaluations evaluations_;
  TrainPosition position_;
  Saver saver_;
  StopAgreement stop_;
  StepTrace trace_;
  bool has_stepped_ = false;
  std::optional<LongTask> first_step_;  // under way
  // Why there is no checkpoint of where a signal stopped it.
  absl::Status unsaved_;
};

// --eval_only: scores what the job starts from. Collective.
absl::Status EvaluateOnly(Job& job, RunReport& report);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_TRAINING_H_
