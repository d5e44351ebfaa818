#include "tools/trainer/training.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status_macros.h"
#include "core/flight/recorder.h"
#include "core/instrument/fault_point.h"
#include "core/program/interrupt.h"
#include "tools/trainer/checkpoints/position.h"
#include "tools/trainer/checkpoints/save_times.h"
#include "tools/trainer/checkpoints/saver.h"
#include "tools/trainer/evaluation.h"
#include "tools/trainer/replica_check.h"
#include "tools/trainer/settings/options.h"
#include "tools/trainer/starting_point.h"
#include "tools/trainer/step_trace.h"
#include "tools/trainer/stop_agreement.h"
#include "tools/trainer/training_set.h"

namespace tandem {
namespace {

// A job that trains.
struct Training {
  Job& job;
  TrainingSet set;
  TrainPosition position;
  Saver saver;
  StopAgreement stop;
  RunReport& report;

  bool done() const { return position.step >= set.steps_in_all(); }
};

absl::Status TrainStep(Training& run, int64_t epoch) {
  Job& job = run.job;
  TANDEM_ASSIGN_OR_RETURN(const Batch batch, run.set.Next());
  RunReport::Step step;
  step.epoch = epoch;
  step.done = run.position.step + 1;
  step.in_all = run.set.steps_in_all();
  step.samples = run.set.SamplesOfStep(run.position.sampler, epoch);
  step.learning_rate = run.set.LearningRate(run.position.step);
  run.report.BeginStep(run.position.step);
  SetFaultContext(job.launch.rank, step.done);
  FlightRecorder::OfProcess().SetStep(step.done);
  const bool traced = StartStepTrace(job.options, step.done);

  if (run.report.IsShown(step)) job.strategy->MeasureGradientNorm();
  TANDEM_RETURN_IF_ERROR(job.strategy->SubmitStep(batch, step.learning_rate));

  run.position = {step.done, run.set.state()};
  TANDEM_RETURN_IF_ERROR(run.report.EndStep(step));
  run.report.SayGraph(job.strategy->DescribeGraph());
  if (!traced) return absl::OkStatus();
  TANDEM_RETURN_IF_ERROR(run.report.ReadScores());
  return WriteStepTrace(job.options.trace_file, *job.world);
}

// Whether replicas are alike, where that is asked for.
absl::Status CheckReplicas(const Training& run) {
  const Job& job = run.job;
  if (job.options.check_replicas_every == 0) return absl::OkStatus();
  TANDEM_RETURN_IF_ERROR(run.report.ReadScores());
  return CheckReplicasAgree(job.strategy->Parameters(), job.mesh,
                            run.position.step, *job.world);
}

// Of steps that have come to something, and of replicas that are alike.
absl::Status Save(Training& run) {
  TANDEM_RETURN_IF_ERROR(CheckReplicas(run));
  TANDEM_RETURN_IF_ERROR(run.report.ReadScores());
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> lines,
                          run.saver.Save(run.position));
  run.report.Say(lines);
  run.report.Pause();
  return absl::OkStatus();
}

absl::Status Evaluate(Job& job, RunReport& report, int64_t epoch) {
  TANDEM_RETURN_IF_ERROR(job.strategy->Synchronise());
  TANDEM_ASSIGN_OR_RETURN(const EvaluationReport evaluation,
                          EvaluateTestSet(job, report.report()));
  return report.ShowEvaluation(epoch, evaluation);
}

// Where a signal asked to: after a step that all ranks stop after, with a
// checkpoint of it. Workers of servers take steps of their own, and stop alone.
absl::Status StopIfAsked(Training& run) {
  if (ServersOf(run.job.options) > 0) {
    return InterruptSignal() == 0 ? absl::OkStatus() : InterruptError();
  }
  TANDEM_ASSIGN_OR_RETURN(const int signal,
                          run.stop.SignalAfter(run.position.step));
  if (signal == 0) return absl::OkStatus();
  TANDEM_RETURN_IF_ERROR(Save(run));
  return InterruptError();
}

// TANDEM_FAULT's point "parameters" with the action "fail": a bit of this
// rank's first parameter flips, as memory's do.
void RehearseCorruption(const Job& job) {
  if (!FaultPoint("parameters").ok()) FlipBit(job.strategy->Parameters());
}

absl::Status TrainEpoch(Training& run, int64_t epoch) {
  const int64_t save_every = run.job.options.save_every;
  const int64_t check_every = run.job.options.check_replicas_every;
  const int64_t steps = run.set.StartEpoch(epoch, run.position.step);
  run.report.StartEpoch(epoch, steps);
  for (int64_t i = 0; i < steps; ++i) {
    TANDEM_RETURN_IF_ERROR(TrainStep(run, epoch));
    RehearseCorruption(run.job);
    if (check_every > 0 && run.position.step % check_every == 0) {
      TANDEM_RETURN_IF_ERROR(CheckReplicas(run));
    }
    if (save_every > 0 && run.position.step % save_every == 0) {
      TANDEM_RETURN_IF_ERROR(Save(run));
    }
    TANDEM_RETURN_IF_ERROR(StopIfAsked(run));
  }
  TANDEM_RETURN_IF_ERROR(run.report.ReadScores());
  run.report.EndEpoch();
  if (steps == 0) return absl::OkStatus();
  // First of all: nothing that comes now may cost the epoch.
  TANDEM_RETURN_IF_ERROR(Save(run));
  return Evaluate(run.job, run.report, epoch);
}

void SayStopped(Training& run) {
  const std::string& saved = run.saver.path();
  run.report.Say(absl::StrFormat("stopped after step %d; %s", run.position.step,
                                 saved.empty()
                                     ? "nothing is saved (--save_dir is empty)"
                                     : absl::StrCat("saved in ", saved)));
}

// Of an interrupted job, too: what is being written is complete in a moment.
absl::Status FinishSaving(Training& run, const absl::Status& trained) {
  if (!trained.ok() && !absl::IsCancelled(trained)) return trained;
  const auto lines = run.saver.Finish();
  if (lines.ok()) run.report.Say(*lines);
  if (trained.ok()) return lines.status();
  SayStopped(run);
  return trained;
}

absl::Status TrainEpochs(Training& run) {
  int64_t epoch = run.position.sampler.epoch;
  for (; !run.done(); ++epoch) TANDEM_RETURN_IF_ERROR(TrainEpoch(run, epoch));
  return absl::OkStatus();
}

}  // namespace

absl::Status Train(Job& job, RunReport& report) {
  TANDEM_ASSIGN_OR_RETURN(TrainingSet set, TrainingSet::Open(job));
  RemoveLeftovers(job, report);
  TANDEM_ASSIGN_OR_RETURN(const std::optional<TrainPosition> resumed,
                          FindStart(job, report));
  const TrainPosition position = resumed.value_or(TrainPosition());
  if (resumed) TANDEM_RETURN_IF_ERROR(set.Restore(position.sampler));
  Training run = {job,
                  std::move(set),
                  position,
                  Saver(job, resumed ? position.step : -1),
                  StopAgreement(job.world.get()),
                  report};
  if (run.done()) {
    report.Say(absl::StrFormat(
        "nothing left to train: step %d of %d is done; give more --epochs or "
        "--max_steps",
        position.step, run.set.steps_in_all()));
    TANDEM_RETURN_IF_ERROR(Evaluate(job, report, position.sampler.epoch));
  }
  TANDEM_RETURN_IF_ERROR(FinishSaving(run, TrainEpochs(run)));
  return report.Summarise(run.saver.path(), run.saver.times());
}

absl::Status EvaluateOnly(Job& job, RunReport& report) {
  TANDEM_ASSIGN_OR_RETURN(const std::optional<TrainPosition> resumed,
                          FindStart(job, report));
  const TrainPosition position = resumed.value_or(TrainPosition());
  TANDEM_RETURN_IF_ERROR(Evaluate(job, report, position.sampler.epoch));
  return report.Summarise(/*checkpoint=*/"", SaveTimes());
}

}  // namespace tandem
