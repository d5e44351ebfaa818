#include "tools/trainer/training.h"

#include <glog/logging.h>

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status_macros.h"
#include "core/checkpoint/folder/step_folders.h"
#include "core/comm/communicator.h"
#include "core/flight/recorder.h"
#include "core/instrument/fault_point.h"
#include "core/instrument/trace.h"
#include "core/program/interrupt.h"
#include "core/program/long_task.h"
#include "core/tensorboard/summary.h"
#include "tools/trainer/checkpoints/resume.h"
#include "tools/trainer/checkpoints/saver.h"
#include "tools/trainer/evaluations.h"
#include "tools/trainer/job/job.h"
#include "tools/trainer/parameter_histograms.h"
#include "tools/trainer/replica_check.h"
#include "tools/trainer/settings/options.h"
#include "tools/trainer/step_trace.h"
#include "tools/trainer/stop_agreement.h"

namespace tandem {
namespace {

// Whether something comes after each `every` steps, and now; 0: never.
bool IsDue(int64_t every, int64_t step) {
  return every > 0 && step % every == 0;
}

// Whether a step is followed by histograms.
bool HasHistograms(const Job& job, int64_t step) {
  return IsDue(job.options.histograms_every, step);
}

// Collective.
absl::Status ShowHistograms(Job& job, RunReport& report, int64_t step) {
  TANDEM_RETURN_IF_ERROR(report.ReadScores());
  TANDEM_ASSIGN_OR_RETURN(const Summary histograms, ParameterHistograms(job));
  report.report().ShowValues(histograms, step);
  report.Pause();
  return absl::OkStatus();
}

// One rank asks, for all of them, whether others wait to join.
std::function<bool()> AsksToLetIn(const Job& job, Replacement* replacement) {
  if (replacement == nullptr || !job.is_rank_zero()) return nullptr;
  // A store that does not answer: nobody could be let in.
  return [replacement] {
    return replacement->HasWaitingReplica().value_or(false);
  };
}

}  // namespace

absl::StatusOr<std::unique_ptr<Training>> Training::Start(
    Job& job, RunReport& report, Replacement* replacement) {
  TANDEM_ASSIGN_OR_RETURN(TrainingSet set, TrainingSet::Open(job));
  job.planned_steps = set.steps_in_all();
  TANDEM_ASSIGN_OR_RETURN(const JobStart start,
                          FindStart(job, report, replacement));
  RemoveLeftovers(job, report);
  const TrainPosition& position = start.stand.position;
  TANDEM_RETURN_IF_ERROR(
      CheckTrace(job, position.step, set.steps_in_all(), report));
  if (job.takes_over()) {
    TANDEM_RETURN_IF_ERROR(set.TakeOver(job, position.sampler, position.step));
  } else if (start.resumed) {
    TANDEM_RETURN_IF_ERROR(set.Restore(position.sampler));
  }
  TANDEM_ASSIGN_OR_RETURN(Evaluations evaluations,
                          Evaluations::Start(job, report, start));
  TANDEM_RETURN_IF_ERROR(report.Begin(start.resumed.has_value()));
  auto training = absl::WrapUnique(new Training(
      job, report, replacement, std::move(set), std::move(evaluations), start));
  TANDEM_RETURN_IF_ERROR(training->EvaluateIfNothingIsLeft());
  return training;
}

Training::Training(Job& job, RunReport& report, Replacement* replacement,
                   TrainingSet set, Evaluations evaluations,
                   const JobStart& start)
    : job_(job),
      report_(report),
      replacement_(replacement),
      set_(std::move(set)),
      evaluations_(std::move(evaluations)),
      position_(start.stand.position),
      saver_(job, start.resumed ? position_.step : -1),
      stop_(job.world.get(), "after the update of step ",
            AsksToLetIn(job, replacement)),
      trace_(job.options, *job.world) {}

absl::Status Training::EvaluateIfNothingIsLeft() {
  if (!done() || job_.takes_over()) return absl::OkStatus();
  report_.Say(
      evaluations_.stops()
          ? absl::StrCat("nothing left to train: ", evaluations_.DescribeStop())
          : absl::StrFormat("nothing left to train: step %d of %d is "
                            "done; give more --epochs or --max_steps",
                            position_.step, set_.steps_in_all()));
  return Evaluate(epoch(), /*within_epoch=*/false);
}

absl::Status Training::Evaluate(int64_t epoch, bool within_epoch) {
  const absl::Status ran = evaluations_.Run(
      {epoch, within_epoch, position_.step, set_.SamplesSoFar()});
  // All ranks stop the evaluation together, except workers of servers.
  if (absl::IsCancelled(ran) && ParameterServerCount(job_.options) == 0) {
    unsaved_ = Save();
  }
  TANDEM_RETURN_IF_ERROR(ran);
  if (!evaluations_.keeps_last()) return absl::OkStatus();
  TANDEM_RETURN_IF_ERROR(Save());
  return LinkBestCheckpoint();
}

// Waits for the checkpoint where it is written behind. A link that cannot be
// made costs no training.
absl::Status Training::LinkBestCheckpoint() {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> lines,
                          saver_.Finish());
  report_.Say(lines);
  if (!job_.is_rank_zero()) return absl::OkStatus();
  const std::string& folder = job_.options.save_dir;
  for (const StepFolder& each : CompleteCheckpoints(folder)) {
    if (each.step != position_.step) continue;
    const absl::Status linked = LinkBest(folder, each.path);
    if (!linked.ok()) {
      report_.Say(absl::StrCat("warning: ", linked.message()));
      return absl::OkStatus();
    }
    // The one that was the best before is one of the old ones now.
    const absl::Status removed = RemoveOld(
        folder, {job_.options.keep_last, job_.options.keep_every}, each.path);
    LOG_IF(WARNING, !removed.ok()) << "an old checkpoint stays: " << removed;
    return absl::OkStatus();
  }
  return absl::OkStatus();
}

absl::Status Training::EvaluateIfDue(int64_t epoch) {
  if (set_.steps_left() == 0 || !evaluation_is_due() ||
      !IsDue(job_.options.eval_every, position_.step)) {
    return absl::OkStatus();
  }
  TANDEM_RETURN_IF_ERROR(report_.ReadScores());
  TANDEM_RETURN_IF_ERROR(Evaluate(epoch, /*within_epoch=*/true));
  report_.GoOn();
  return absl::OkStatus();
}

absl::Status Training::ShowSampleIfDue() {
  if (!IsDue(job_.options.sample_every, position_.step)) {
    return absl::OkStatus();
  }
  TANDEM_RETURN_IF_ERROR(report_.ReadScores());
  TANDEM_RETURN_IF_ERROR(evaluations_.ShowSample(position_.step));
  report_.Pause();
  return absl::OkStatus();
}

absl::StatusOr<int64_t> Training::StartEpoch(int64_t epoch) {
  const int64_t steps = set_.StartEpoch(epoch, position_.step);
  report_.StartEpoch(epoch, steps);
  // A checkpoint is written before the evaluation of its step.
  TANDEM_RETURN_IF_ERROR(EvaluateIfDue(epoch));
  return steps;
}

absl::StatusOr<Batch> Training::NextBatch() {
  const int64_t step = position_.step + 1;
  // Devices have none of the steps before left to do.
  if (trace_.BeginsWith(step)) TANDEM_RETURN_IF_ERROR(report_.ReadScores());
  trace_.BeginStep(step);
  const TraceScope slice(kHostTrack, "load batch");
  return set_.Next();
}

absl::StatusOr<RunReport::Step> Training::BeginStep(int64_t epoch) {
  RunReport::Step step;
  step.epoch = epoch;
  step.done = position_.step + 1;
  step.in_all = set_.steps_in_all();
  step.samples = set_.StepSampleCount(position_.sampler, epoch);
  step.samples_so_far = set_.SamplesSoFar();
  step.learning_rate = set_.LearningRate(position_.step);
  report_.BeginStep(position_.step);
  if (job_.kernels != nullptr && !has_stepped_) {
    first_step_.emplace("the first step, in which kernels are timed,",
                        LongTask::SpeaksIf(job_.is_rank_zero()));
  }
  has_stepped_ = true;
  SetFaultContext(job_.launched_rank(), step.done);
  FlightRecorder::OfProcess().SetStep(step.done);
  if (replacement_ != nullptr) {
    TANDEM_RETURN_IF_ERROR(replacement_->BeginStep(job_));
  }
  TANDEM_RETURN_IF_ERROR(FaultPoint("step"));
  if (report_.IsShown(step) || HasHistograms(job_, step.done)) {
    job_.strategy->MeasureGradientNorm();
  }
  return step;
}

absl::Status Training::EndStep(const RunReport::Step& step) {
  first_step_.reset();
  if (replacement_ != nullptr) replacement_->EndStep();
  position_ = {step.done, set_.state()};
  {
    const TraceScope slice(kHostTrack, "report");
    TANDEM_RETURN_IF_ERROR(report_.EndStep(step));
  }
  trace_.EndStep(step.done);
  if (trace_.EndsWith(step.done)) TANDEM_RETURN_IF_ERROR(EndTrace());
  if (HasHistograms(job_, step.done)) {
    TANDEM_RETURN_IF_ERROR(ShowHistograms(job_, report_, step.done));
  }
  // TANDEM_FAULT's point "parameters" with the action "fail": a bit of this
  // rank's first parameter that replicas have alike flips, as memory's do.
  if (!FaultPoint("parameters").ok()) FlipBit(job_.strategy->AlikeParameters());
  return absl::OkStatus();
}

absl::Status Training::EndTrace() {
  TANDEM_RETURN_IF_ERROR(report_.ReadScores());
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> lines, trace_.Write());
  report_.Say(lines);
  report_.Pause();
  return absl::OkStatus();
}

absl::Status Training::CheckReplicas() const {
  if (job_.options.check_replicas_every == 0) return absl::OkStatus();
  TANDEM_RETURN_IF_ERROR(report_.ReadScores());
  return CheckReplicasAgree(job_.strategy->AlikeParameters(), job_.mesh,
                            position_.step, *job_.world);
}

absl::Status Training::CheckReplicasIfDue() {
  return IsDue(job_.options.check_replicas_every, position_.step)
             ? CheckReplicas()
             : absl::OkStatus();
}

absl::Status Training::Save() {
  const TraceScope slice(kHostTrack, "save");
  const LongTask saving(
      absl::StrCat("writing the checkpoint of step ", position_.step),
      LongTask::SpeaksIf(job_.is_rank_zero()));
  TANDEM_RETURN_IF_ERROR(CheckReplicas());
  TANDEM_RETURN_IF_ERROR(report_.ReadScores());
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> lines,
                          saver_.Save(position_));
  report_.Say(lines);
  report_.Pause();
  return absl::OkStatus();
}

absl::Status Training::SaveIfDue() {
  return IsDue(job_.options.save_every, position_.step) ? Save()
                                                        : absl::OkStatus();
}

// Ends this generation if a rank waits to join: Aborted, which is no failure.
absl::Status Training::AdmitIfAsked() {
  if (!stop_.asked()) return absl::OkStatus();
  TANDEM_RETURN_IF_ERROR(report_.ReadScores());
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> lines,
                          saver_.Finish());
  report_.Say(lines);
  replacement_->EndForAdmission();
  return absl::AbortedError("a rank waits to be let in");
}

absl::Status Training::StopIfAsked() {
  if (ParameterServerCount(job_.options) > 0) {
    return InterruptSignal() == 0 ? absl::OkStatus() : InterruptError();
  }
  TANDEM_ASSIGN_OR_RETURN(const int signal, stop_.SignalAfter(position_.step));
  if (signal == 0) return AdmitIfAsked();
  unsaved_ = Save();
  return InterruptError();
}

bool Training::is_saved_after(int64_t epoch) const {
  return done() || IsDue(job_.options.save_every_epochs, epoch + 1);
}

absl::Status Training::EndEpoch(int64_t epoch) {
  TANDEM_RETURN_IF_ERROR(report_.ReadScores());
  report_.EndEpoch();
  if (evaluation_is_due()) {
    // Saves before evaluating, so that a failure loses nothing of the epoch.
    if (is_saved_after(epoch)) TANDEM_RETURN_IF_ERROR(Save());
    TANDEM_RETURN_IF_ERROR(Evaluate(epoch, /*within_epoch=*/false));
  }
  if (!evaluations_.stops()) return absl::OkStatus();
  report_.Say(absl::StrCat("training ends after step ", position_.step, ": ",
                           evaluations_.DescribeStop()));
  return Save();
}

// Says, for a person, where an interrupted job is saved.
std::string Training::DescribeSaved() const {
  const std::string& last = saver_.path();
  if (job_.options.save_dir.empty()) {
    return "nothing is saved (--save_dir is empty)";
  }
  if (!unsaved_.ok() || saver_.saved_step() != position_.step) {
    return last.empty() ? "it is not saved"
                        : absl::StrCat(
                              "it is not saved; the checkpoint before "
                              "it is ",
                              last);
  }
  return last.empty() ? "it is saved already" : absl::StrCat("saved in ", last);
}

// Completes a checkpoint that is being written, also of an interrupted job.
absl::Status Training::FinishSaving(const absl::Status& trained) {
  if (!trained.ok() && !absl::IsCancelled(trained)) return trained;
  const auto lines = saver_.Finish();
  if (lines.ok()) report_.Say(*lines);
  if (trained.ok()) return lines.status();
  if (unsaved_.ok()) unsaved_ = lines.status();
  report_.Say(absl::StrFormat("stopped after step %d; %s", position_.step,
                              DescribeSaved()));
  if (unsaved_.ok()) return trained;
  return absl::CancelledError(
      absl::StrCat(trained.message(), ", and step ", position_.step,
                   " could not be saved: ", unsaved_.message()));
}

absl::Status Training::Summarise(const absl::Status& trained) {
  TANDEM_RETURN_IF_ERROR(FinishSaving(trained));
  return report_.Summarise(saver_.path(), saver_.times(), evaluations_.best());
}

absl::Status Training::Finish(const absl::Status& trained) {
  // What a signal has cut off is shown so far.
  if (trace_.is_on() && absl::IsCancelled(trained)) {
    const absl::Status traced = EndTrace();
    if (!traced.ok()) LOG(WARNING) << "no trace: " << traced;
  }
  const absl::Status ended = Summarise(trained);
  if (ended.ok() || replacement_ == nullptr) return ended;
  const absl::Status kept = replacement_->Keep(
      job_, {position_, evaluations_.done()},
      {{position_.step + 1, set_.state()}, evaluations_.done()});
  return kept.ok() ? ended : kept;
}

absl::Status EvaluateOnly(Job& job, RunReport& report) {
  TANDEM_ASSIGN_OR_RETURN(const JobStart start, FindStart(job, report));
  TANDEM_RETURN_IF_ERROR(report.Begin(start.resumed.has_value()));
  const TrainPosition& position = start.stand.position;
  TANDEM_RETURN_IF_ERROR(EvaluateOnce(
      job, report,
      {position.sampler.epoch, /*within_epoch=*/false, position.step, 0}));
  return report.Summarise(/*checkpoint=*/"", SaveTimes());
}

}  // namespace tandem
