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
#include "core/comm/communicator.h"
#include "core/flight/recorder.h"
#include "core/instrument/fault_point.h"
#include "core/instrument/trace.h"
#include "core/model/batch.h"
#include "core/program/interrupt.h"
#include "core/program/long_task.h"
#include "datasets/distributed_sampler.h"
#include "datasets/loader.h"
#include "tools/trainer/checkpoints/resume.h"
#include "tools/trainer/checkpoints/saver.h"
#include "tools/trainer/job/data.h"
#include "tools/trainer/job/job.h"
#include "tools/trainer/replica_check.h"
#include "tools/trainer/report/report.h"
#include "tools/trainer/report/reports.h"
#include "tools/trainer/settings/options.h"
#include "tools/trainer/step_trace.h"
#include "tools/trainer/stop_agreement.h"

namespace tandem {
namespace {

int64_t BatchSize(const Job& job) {
  return EvaluationBatchSize(job.options, job.batch_size_per_replica,
                             *job.data.test);
}

absl::StatusOr<std::unique_ptr<Loader>> TestLoader(const Job& job) {
  DistributedSamplerOptions sampling;
  sampling.num_replicas = job.mesh.data();
  sampling.rank = job.data_rank();
  sampling.shuffle = false;
  sampling.even = false;
  TANDEM_ASSIGN_OR_RETURN(
      std::shared_ptr<DistributedSampler> sampler,
      DistributedSampler::Create(job.data.test->size(), sampling));
  LoaderOptions loading;
  loading.batch_size = BatchSize(job);
  loading.parts = {job.strategy->takes_inputs(), job.strategy->takes_targets()};
  loading.workers = job.options.workers;
  return Loader::Create(job.data.test, std::move(sampler), loading);
}

// The number of batches of the replica that has the most.
int64_t MostBatches(const Job& job) {
  const int64_t replicas = job.mesh.data();
  const int64_t samples = (job.data.test->size() + replicas - 1) / replicas;
  return (samples + BatchSize(job) - 1) / BatchSize(job);
}

// After a signal all ranks stop after the same batch: a rank that left alone
// would break a sum of the others, and what they have yet to write. Workers of
// servers stop alone.
absl::Status StopIfAsked(const Job& job, StopAgreement* stop, int64_t done) {
  int signal = InterruptSignal();
  if (ParameterServerCount(job.options) == 0) {
    TANDEM_ASSIGN_OR_RETURN(signal, stop->SignalAfter(done));
  }
  return signal == 0 ? absl::OkStatus() : InterruptError();
}

// Evaluates the test set, which must not be empty: each sample counts exactly
// once, on any number of ranks. The same on every rank. Collective.
absl::StatusOr<EvaluationReport> EvaluateTestSet(Job& job, Report& report) {
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<Loader> loader, TestLoader(job));
  loader->StartEpoch();
  const int64_t batches = MostBatches(job);
  report.StartProgress("evaluation", batches);
  StopAgreement stop(job.world.get(), "in an evaluation, after batch ");
  int64_t begun = 0;
  const auto next = [&]() -> absl::StatusOr<std::optional<Batch>> {
    if (begun > 0) report.ShowProgress(begun, "");
    if (begun == batches) return std::nullopt;
    TANDEM_RETURN_IF_ERROR(FaultPoint("evaluate", begun));
    TANDEM_RETURN_IF_ERROR(StopIfAsked(job, &stop, begun));
    // Another replica may have one more.
    TANDEM_ASSIGN_OR_RETURN(std::optional<Batch> batch, loader->Next());
    ++begun;
    return batch;
  };
  TANDEM_ASSIGN_OR_RETURN(const Score mine,
                          job.strategy->EvaluateBatches(next));
  report.EndProgress();
  EvaluationReport all;
  TANDEM_ASSIGN_OR_RETURN(all.score, job.strategy->Sum(mine));
  TANDEM_ASSIGN_OR_RETURN(all.sums, job.strategy->TakeEvaluationSums());
  return all;
}

// Whether something comes after each `every` steps, and now; 0: never.
bool IsDue(int64_t every, int64_t step) {
  return every > 0 && step % every == 0;
}

// One rank asks, for all of them, whether another waits to join.
std::function<bool()> AsksToLetIn(const Job& job, Replacement* replacement) {
  if (replacement == nullptr || !job.is_rank_zero()) return nullptr;
  // A store that does not answer: nobody could be let in.
  return [replacement] {
    return replacement->HasWaitingProcess().value_or(false);
  };
}

absl::Status Evaluate(Job& job, RunReport& report, int64_t epoch) {
  if (!job.data.has_test()) return absl::OkStatus();
  const TraceScope slice(kHostTrack, "evaluate");
  TANDEM_RETURN_IF_ERROR(job.strategy->Synchronise());
  TANDEM_ASSIGN_OR_RETURN(const EvaluationReport evaluation,
                          EvaluateTestSet(job, report.report()));
  return report.ShowEvaluation(epoch, evaluation);
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
  TANDEM_RETURN_IF_ERROR(report.Begin(start.resumed.has_value()));
  auto training = absl::WrapUnique(
      new Training(job, report, replacement, std::move(set), start));
  TANDEM_RETURN_IF_ERROR(training->EvaluateIfNothingIsLeft());
  return training;
}

Training::Training(Job& job, RunReport& report, Replacement* replacement,
                   TrainingSet set, const JobStart& start)
    : job_(job),
      report_(report),
      replacement_(replacement),
      set_(std::move(set)),
      position_(start.stand.position),
      saver_(job, start.resumed ? position_.step : -1),
      stop_(job.world.get(), "after the update of step ",
            AsksToLetIn(job, replacement)),
      trace_(job.options, *job.world),
      evaluated_(start.stand.evaluated) {}

absl::Status Training::EvaluateIfNothingIsLeft() {
  if (!done() || job_.takes_over()) return absl::OkStatus();
  report_.Say(absl::StrFormat(
      "nothing left to train: step %d of %d is done; give more --epochs or "
      "--max_steps",
      position_.step, set_.steps_in_all()));
  TANDEM_RETURN_IF_ERROR(Evaluate(job_, report_, epoch()));
  evaluated_ = position_.step;
  return absl::OkStatus();
}

int64_t Training::StartEpoch(int64_t epoch) {
  const int64_t steps = set_.StartEpoch(epoch, position_.step);
  report_.StartEpoch(epoch, steps);
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
  if (report_.IsShown(step)) job_.strategy->MeasureGradientNorm();
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
  if (!evaluation_is_due()) return absl::OkStatus();
  // Saves before evaluating, so that a failure loses nothing of the epoch.
  const bool is_saved = is_saved_after(epoch);
  if (is_saved) TANDEM_RETURN_IF_ERROR(Save());
  const absl::Status evaluated = Evaluate(job_, report_, epoch);
  // All ranks stop the evaluation together, except workers of servers.
  if (absl::IsCancelled(evaluated) && !is_saved &&
      ParameterServerCount(job_.options) == 0) {
    unsaved_ = Save();
  }
  TANDEM_RETURN_IF_ERROR(evaluated);
  evaluated_ = position_.step;
  return absl::OkStatus();
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
  return report_.Summarise(saver_.path(), saver_.times());
}

absl::Status Training::Finish(const absl::Status& trained) {
  // What a signal has cut off is shown so far.
  if (trace_.is_on() && absl::IsCancelled(trained)) {
    const absl::Status traced = EndTrace();
    if (!traced.ok()) LOG(WARNING) << "no trace: " << traced;
  }
  const absl::Status ended = Summarise(trained);
  if (ended.ok() || replacement_ == nullptr) return ended;
  const absl::Status kept = replacement_->Keep(job_, {position_, evaluated_});
  return kept.ok() ? ended : kept;
}

absl::Status EvaluateOnly(Job& job, RunReport& report) {
  TANDEM_ASSIGN_OR_RETURN(const JobStart start, FindStart(job, report));
  TANDEM_RETURN_IF_ERROR(report.Begin(start.resumed.has_value()));
  TANDEM_RETURN_IF_ERROR(
      Evaluate(job, report, start.stand.position.sampler.epoch));
  return report.Summarise(/*checkpoint=*/"", SaveTimes());
}

}  // namespace tandem
