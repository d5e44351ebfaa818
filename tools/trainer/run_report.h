// Report of a run: its steps, its progress and what it came to.

#ifndef TANDEM_TOOLS_TRAINER_RUN_REPORT_H_
#define TANDEM_TOOLS_TRAINER_RUN_REPORT_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/device/device_moment.h"
#include "core/model/batch.h"
#include "core/sim/streams/streams.h"
#include "parallel/step/step_score.h"
#include "tools/trainer/checkpoints/saver.h"
#include "tools/trainer/job/job.h"
#include "tools/trainer/report/report.h"
#include "tools/trainer/report/reports.h"
#include "tools/trainer/step_meter.h"

namespace tandem {

// What the job says: on rank 0 to a person and in --metrics_file, and nothing
// on the others.
absl::StatusOr<Report> OpenReport(const Job& job);

// Epochs and steps are counted from 0 here, and from 1 in what is shown. Not
// thread-safe.
class RunReport {
 public:
  // Shows the settings, unless ranks before did. All must outlive it.
  static absl::StatusOr<RunReport> Start(const Job& job, Report& report);

  // Nothing more can refuse the job: as Report::Begin. `resumed`: it goes on
  // from a checkpoint.
  absl::Status Begin(bool resumed);

  void Say(const std::string& line) { report_->Say(line); }
  void Say(const std::vector<std::string>& lines) {
    for (const std::string& line : lines) report_->Say(line);
  }

  // Times are taken from here on.
  void StartEpoch(int64_t epoch, int64_t steps);
  void EndEpoch() { report_->EndProgress(); }
  // The time since the last step does not count for the next one.
  void Pause() { last_step_end_ = Clock::now(); }

  struct Step {
    int64_t epoch = 0;
    int64_t done = 0;            // steps of the job, with this one
    int64_t in_all = 0;          // that the job has
    int64_t samples = 0;         // of all replicas
    int64_t samples_so_far = 0;  // of the job, with this step's
    double learning_rate = 0;
  };
  // Before a step's computation, `done` of them being done.
  void BeginStep(int64_t done);
  // After it, when it has been submitted. Reads the scores of all steps so far
  // where they are to be shown, on the CPU at once, and elsewhere before there
  // are too many of them, so that devices are not waited for in each step: as
  // ReadScores. Collective.
  absl::Status EndStep(const Step& step);
  // OutOfRange for a loss that is not finite, unless the step was skipped for
  // it. Collective.
  absl::Status ReadScores();

  // OutOfRange for a loss that is not finite, where weights are not either, or
  // there is nothing but the evaluation. Collective.
  absl::Status ShowEvaluation(const EvaluationReport& evaluation);
  // The evaluation within an epoch, or what else used the progress bar, has
  // ended: the epoch's goes on, and its time does not count for the next step.
  void GoOn();
  // Collective. `checkpoint`: the last one; empty: there is none. `best`: the
  // best evaluation, where one was asked for. OutOfRange where --skip_nonfinite
  // has skipped all steps.
  absl::Status Summarise(const std::string& checkpoint, const SaveTimes& saves,
                         const std::optional<BestReport>& best = std::nullopt);

  // Tokens of so many samples; 0: they are no text.
  int64_t TokenCount(int64_t samples) const;

  // Will there be a line of this step?
  bool IsShown(const Step& step) const;

  Report& report() { return *report_; }

 private:
  using Clock = std::chrono::steady_clock;

  RunReport(const Job& job, Report& report) : job_(&job), report_(&report) {}

  // Submitted, and not read.
  struct Pending {
    Step step;
    DeviceMoment end;
  };

  void NoteSkipped(const SkippedStepReport& skipped);
  absl::Status Note(const Pending& ended, const StepScore& score);
  StepReport MakeStepReport(const Step& step, const StepScore& score) const;
  absl::StatusOr<std::vector<RankReport>> GatherRanks(
      const RankReport& mine) const;

  const Job* job_;
  Report* report_;
  StepMeter meter_;
  Score own_score_;  // of this rank's samples, since the last line
  HostWaitMeter host_waits_;
  std::vector<Pending> pending_;
  int64_t first_ = 0;  // steps that were done when the epoch began
  std::string epoch_;  // what its progress bar says
  int64_t epoch_steps_ = 0;
  Clock::time_point last_step_end_;
  SummaryReport summary_;
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_RUN_REPORT_H_
