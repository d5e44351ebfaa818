#include "tools/trainer/training.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status_macros.h"
#include "core/comm/communicator.h"
#include "core/files/atomic_file.h"
#include "core/flight/recorder.h"
#include "core/instrument/fault_point.h"
#include "core/instrument/trace.h"
#include "core/program/interrupt.h"
#include "tools/trainer/checkpoints/position.h"
#include "tools/trainer/checkpoints/resume.h"
#include "tools/trainer/checkpoints/save_times.h"
#include "tools/trainer/checkpoints/saver.h"
#include "tools/trainer/evaluation.h"
#include "tools/trainer/replacement/replacement.h"
#include "tools/trainer/replica_check.h"
#include "tools/trainer/settings/options.h"
#include "tools/trainer/starting_point.h"
#include "tools/trainer/stop_agreement.h"
#include "tools/trainer/training_set.h"

namespace tandem {
namespace {

// Starts the trace of this process if `step`, from 1, is the one of
// --trace_step and --trace_file names a file. Says whether it did.
bool StartStepTrace(const TrainOptions& options, int64_t step) {
  const bool traced = !options.trace_file.empty() && step == options.trace_step;
  if (traced) Trace::OfProcess().Start();
  return traced;
}

// Ends the trace of this process, and writes those of all ranks to `path` (on
// rank 0), for Perfetto or chrome://tracing. Collective.
absl::Status WriteStepTrace(const std::string& path, Communicator& world) {
  const std::string mine = TraceToJson(Trace::OfProcess().Stop(), world.rank());
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                          world.AllGatherString(mine));
  if (world.rank() != 0) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(const std::string joined, JoinTraces(all));
  return WriteOutputFile(path, joined);
}

// A job that trains.
struct Training {
  Job& job;
  TrainingSet set;
  TrainPosition position;
  Saver saver;
  StopAgreement stop;
  RunReport& report;
  // Steps that were done at the last evaluation.
  int64_t evaluated = 0;
  Replacement* replacement = nullptr;  // null: without one
  // Why there is no checkpoint of where a signal stopped it.
  absl::Status unsaved = {};

  bool done() const { return position.step >= set.steps_in_all(); }
  // Did a generation, or the job that saved a checkpoint, end before it scored
  // what its steps came to? Of a checkpoint nobody can tell: it is written
  // before.
  bool owes_evaluation() const { return position.step > evaluated; }
};

absl::Status TrainStep(Training& run, int64_t epoch) {
  Job& job = run.job;
  TANDEM_ASSIGN_OR_RETURN(const Batch batch, run.set.Next());
  RunReport::Step step;
  step.epoch = epoch;
  step.done = run.position.step + 1;
  step.in_all = run.set.steps_in_all();
  step.samples = run.set.SamplesOfStep(run.position.sampler, epoch);
  step.samples_so_far = run.set.SamplesSoFar();
  step.learning_rate = run.set.LearningRate(run.position.step);
  run.report.BeginStep(run.position.step);
  SetFaultContext(job.launched_rank(), step.done);
  FlightRecorder::OfProcess().SetStep(step.done);
  const bool traced = StartStepTrace(job.options, step.done);

  if (run.replacement != nullptr) {
    TANDEM_RETURN_IF_ERROR(run.replacement->BeginStep(job));
  }
  TANDEM_RETURN_IF_ERROR(FaultPoint("step"));
  if (run.report.IsShown(step)) job.strategy->MeasureGradientNorm();
  TANDEM_RETURN_IF_ERROR(job.strategy->SubmitStep(batch, step.learning_rate));

  if (run.replacement != nullptr) run.replacement->EndStep();
  run.position = {step.done, run.set.state()};
  TANDEM_RETURN_IF_ERROR(run.report.EndStep(step));
  if (!traced) return absl::OkStatus();
  TANDEM_RETURN_IF_ERROR(run.report.ReadScores());
  return WriteStepTrace(job.options.trace_file, *job.world);
}

// Whether replicas are alike, where that is asked for.
absl::Status CheckReplicas(const Training& run) {
  const Job& job = run.job;
  if (job.options.check_replicas_every == 0) return absl::OkStatus();
  TANDEM_RETURN_IF_ERROR(run.report.ReadScores());
  return CheckReplicasAgree(job.strategy->AlikeParameters(), job.mesh,
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
  if (!job.data.has_test()) return absl::OkStatus();
  TANDEM_RETURN_IF_ERROR(job.strategy->Synchronise());
  TANDEM_ASSIGN_OR_RETURN(const EvaluationReport evaluation,
                          EvaluateTestSet(job, report.report()));
  return report.ShowEvaluation(epoch, evaluation);
}

// Where a rank waits to be let in: this generation ends, which is no error of
// anybody's.
absl::Status LetInIfAsked(Training& run) {
  if (!run.stop.asked()) return absl::OkStatus();
  TANDEM_RETURN_IF_ERROR(run.report.ReadScores());
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> lines,
                          run.saver.Finish());
  run.report.Say(lines);
  run.replacement->EndToLetIn();
  return absl::AbortedError("a rank waits to be let in");
}

// Where a signal asked to: after a step that all ranks stop after, with a
// checkpoint of it. Workers of servers take steps of their own, and stop alone.
absl::Status StopIfAsked(Training& run) {
  if (ServersOf(run.job.options) > 0) {
    return InterruptSignal() == 0 ? absl::OkStatus() : InterruptError();
  }
  TANDEM_ASSIGN_OR_RETURN(const int signal,
                          run.stop.SignalAfter(run.position.step));
  if (signal == 0) return LetInIfAsked(run);
  run.unsaved = Save(run);
  return InterruptError();
}

// TANDEM_FAULT's point "parameters" with the action "fail": a bit of this
// rank's first parameter that replicas have alike flips, as memory's do.
void RehearseCorruption(const Job& job) {
  if (!FaultPoint("parameters").ok()) FlipBit(job.strategy->AlikeParameters());
}

// Whether a checkpoint comes at its end.
bool IsSaved(const Training& run, int64_t epoch) {
  const int64_t every = run.job.options.save_every_epochs;
  return run.done() || (every > 0 && (epoch + 1) % every == 0);
}

absl::Status EndEpoch(Training& run, int64_t epoch) {
  // First of all: nothing that comes now may cost the epoch.
  const bool is_saved = IsSaved(run, epoch);
  if (is_saved) TANDEM_RETURN_IF_ERROR(Save(run));
  const absl::Status evaluated = Evaluate(run.job, run.report, epoch);
  // Ranks break it off together, but for workers of servers.
  if (absl::IsCancelled(evaluated) && !is_saved &&
      ServersOf(run.job.options) == 0) {
    run.unsaved = Save(run);
  }
  TANDEM_RETURN_IF_ERROR(evaluated);
  run.evaluated = run.position.step;
  return absl::OkStatus();
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
  return run.owes_evaluation() ? EndEpoch(run, epoch) : absl::OkStatus();
}

// What there is of an interrupted job.
std::string DescribeSaved(const Training& run) {
  const std::string& last = run.saver.path();
  if (run.job.options.save_dir.empty()) {
    return "nothing is saved (--save_dir is empty)";
  }
  if (!run.unsaved.ok() || run.saver.saved_step() != run.position.step) {
    return last.empty() ? "it is not saved"
                        : absl::StrCat(
                              "it is not saved; the checkpoint before "
                              "it is ",
                              last);
  }
  return last.empty() ? "it is saved already" : absl::StrCat("saved in ", last);
}

// Of an interrupted job, too: what is being written is complete in a moment.
absl::Status FinishSaving(Training& run, const absl::Status& trained) {
  if (!trained.ok() && !absl::IsCancelled(trained)) return trained;
  const auto lines = run.saver.Finish();
  if (lines.ok()) run.report.Say(*lines);
  if (trained.ok()) return lines.status();
  if (run.unsaved.ok()) run.unsaved = lines.status();
  run.report.Say(absl::StrFormat("stopped after step %d; %s", run.position.step,
                                 DescribeSaved(run)));
  if (run.unsaved.ok()) return trained;
  return absl::CancelledError(
      absl::StrCat(trained.message(), ", and step ", run.position.step,
                   " could not be saved: ", run.unsaved.message()));
}

absl::Status TrainEpochs(Training& run) {
  int64_t epoch = run.position.sampler.epoch;
  for (; !run.done() || run.owes_evaluation(); ++epoch) {
    TANDEM_RETURN_IF_ERROR(TrainEpoch(run, epoch));
  }
  return absl::OkStatus();
}

// Of one rank for all: whether there is another to be let in.
std::function<bool()> AsksToLetIn(const Job& job, Replacement* replacement) {
  if (replacement == nullptr || !job.speaks()) return nullptr;
  // A store that does not answer: nobody could be let in.
  return [replacement] { return replacement->SomebodyWaits().value_or(false); };
}

// What there is to go on with, if others end the generation.
absl::Status KeepForOthers(const Training& run, const absl::Status& trained) {
  if (trained.ok() || run.replacement == nullptr) return trained;
  const absl::Status kept =
      run.replacement->Keep(run.job, {run.position, run.evaluated});
  return kept.ok() ? trained : kept;
}

absl::Status TrainToEnd(Training& run) {
  TANDEM_RETURN_IF_ERROR(FinishSaving(run, TrainEpochs(run)));
  return run.report.Summarise(run.saver.path(), run.saver.times());
}

// The same command starts a job and goes on with it: what traced the step then
// was an earlier process of the job.
absl::Status CheckTrace(const Job& job, int64_t done, int64_t in_all,
                        RunReport& report) {
  if (job.takes_over()) return absl::OkStatus();
  const absl::Status comes = CheckStepToTrace(job.options, done, in_all);
  const bool goes_on = job.is_restarted() || job.options.resume == kResumeAuto;
  if (comes.ok() || !goes_on || job.options.trace_step > done) return comes;
  report.Say(absl::StrCat("no trace: step ", job.options.trace_step,
                          " (--trace_step) was done before"));
  return absl::OkStatus();
}

}  // namespace

absl::Status Train(Job& job, RunReport& report, Replacement* replacement) {
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
  Training run = {job,
                  std::move(set),
                  position,
                  Saver(job, start.resumed ? position.step : -1),
                  StopAgreement(job.world.get(), "after the update of step ",
                                AsksToLetIn(job, replacement)),
                  report,
                  start.stand.evaluated,
                  replacement};
  if (run.done() && !job.takes_over()) {
    report.Say(absl::StrFormat(
        "nothing left to train: step %d of %d is done; give more --epochs or "
        "--max_steps",
        position.step, run.set.steps_in_all()));
    TANDEM_RETURN_IF_ERROR(Evaluate(job, report, position.sampler.epoch));
    run.evaluated = position.step;
  }
  return KeepForOthers(run, TrainToEnd(run));
}

absl::Status EvaluateOnly(Job& job, RunReport& report) {
  TANDEM_ASSIGN_OR_RETURN(const JobStart start, FindStart(job, report));
  TANDEM_RETURN_IF_ERROR(report.Begin(start.resumed.has_value()));
  TANDEM_RETURN_IF_ERROR(
      Evaluate(job, report, start.stand.position.sampler.epoch));
  return report.Summarise(/*checkpoint=*/"", SaveTimes());
}

}  // namespace tandem
