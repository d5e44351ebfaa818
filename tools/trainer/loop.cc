#include "tools/trainer/loop.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status_macros.h"
#include "core/checkpoint/fingerprint.h"
#include "core/instrument/fault_point.h"
#include "core/instrument/trace.h"
#include "core/program/process.h"
#include "datasets/distributed_sampler.h"
#include "datasets/loader.h"
#include "parallel/optim/learning_rate.h"
#include "tools/trainer/evaluation.h"
#include "core/program/interrupt.h"
#include "tools/trainer/job/job_devices.h"
#include "tools/trainer/saving.h"
#include "tools/trainer/step_meter.h"
#include "tools/trainer/step_trace.h"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;

LearningRateOptions LearningRateOptionsOf(const TrainOptions& options,
                                          int64_t steps_in_all) {
  LearningRateOptions rate;
  rate.learning_rate = ResolvedLearningRate(options);
  rate.warmup_steps = options.lr_warmup_steps;
  if (options.lr_schedule == "step") rate.decay = LearningRateDecay::kStep;
  if (options.lr_schedule == "cosine") rate.decay = LearningRateDecay::kCosine;
  rate.decay_steps = options.lr_step_size;
  rate.gamma = options.lr_gamma;
  rate.total_steps = steps_in_all;
  return rate;
}

// The state of one run. Epochs and steps are counted from 0 inside, from 1 in
// what is shown.
class Loop {
 public:
  Loop(Job& job, Report& report) : job_(job), report_(report) {}

  absl::Status Run();

 private:
  absl::Status OpenTrainingSet();
  absl::StatusOr<int64_t> StepsPerEpoch() const;
  absl::Status Resume();
  absl::Status Train();
  absl::Status TrainEpoch(int64_t epoch);
  absl::Status TrainStep(const Batch& batch, int64_t epoch);
  int64_t SamplesOfStep(int64_t epoch) const;
  absl::Status ReportSteps(int64_t epoch, double learning_rate);
  absl::Status Evaluate(int64_t epoch);
  absl::Status Save();
  absl::Status Summarise();

  const TrainOptions& options() const { return job_.options; }
  bool done() const { return position_.step >= steps_in_all_; }

  Job& job_;
  Report& report_;
  std::shared_ptr<DistributedSampler> sampler_;
  std::unique_ptr<Loader> loader_;
  int64_t steps_in_all_ = 0;
  LearningRateOptions learning_rate_;
  TrainPosition position_;
  int64_t saved_step_ = -1;  // that of the last checkpoint
  StepMeter meter_;
  Clock::time_point last_step_end_;
  SummaryReport summary_;
};

absl::Status Loop::Run() {
  if (!options().eval_only) TANDEM_RETURN_IF_ERROR(OpenTrainingSet());
  TANDEM_RETURN_IF_ERROR(Resume());
  if (options().eval_only) {
    TANDEM_RETURN_IF_ERROR(Evaluate(position_.sampler.epoch));
  } else {
    TANDEM_RETURN_IF_ERROR(Train());
  }
  return Summarise();
}

absl::Status Loop::OpenTrainingSet() {
  DistributedSamplerOptions sampling;
  sampling.num_replicas = job_.mesh.data();
  sampling.rank = job_.data_rank();
  sampling.seed = options().seed;
  if (options().pipeline.reproducible) {
    sampling.slices_of = options().batch_size;
    sampling.drop_last = options().drop_last;
    sampling.even = options().drop_last;
  }
  TANDEM_ASSIGN_OR_RETURN(
      sampler_, DistributedSampler::Create(job_.train_data->size(), sampling));
  LoaderOptions loading;
  loading.batch_size = job_.batch_size_per_replica;
  loading.drop_last = options().drop_last;
  loading.parts = {job_.strategy->takes_inputs(),
                   job_.strategy->takes_targets()};
  loading.workers = options().workers;
  loading.pin_memory = options().devices.device != "cpu";
  TANDEM_ASSIGN_OR_RETURN(loader_,
                          Loader::Create(job_.train_data, sampler_, loading));
  TANDEM_ASSIGN_OR_RETURN(const int64_t steps_per_epoch, StepsPerEpoch());
  steps_in_all_ = options().epochs * steps_per_epoch;
  if (options().max_steps > 0) {
    steps_in_all_ = std::min(steps_in_all_, options().max_steps);
  }
  learning_rate_ = LearningRateOptionsOf(options(), steps_in_all_);
  return ValidateLearningRate(learning_rate_);
}

// Of a whole one: the sampler stands at the beginning of its first.
absl::StatusOr<int64_t> Loop::StepsPerEpoch() const {
  const int64_t samples = job_.train_data->size();
  const int64_t batch = options().batch_size;
  // Padding gives no replica more batches.
  const int64_t steps = options().drop_last ? sampler_->num_samples() /
                                                  job_.batch_size_per_replica
                                            : (samples + batch - 1) / batch;
  if (steps > 0) return steps;
  return absl::InvalidArgumentError(absl::StrCat(
      "--batch_size=", batch, ": the training set has only ", samples,
      " samples, not one full batch (--nodrop_last would take them)"));
}

absl::Status Loop::Resume() {
  if (options().resume.empty()) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(position_, ResumeJob(job_, options().resume));
  job_.strategy->ResumeAt(position_.step);
  saved_step_ = position_.step;
  report_.Say(absl::StrFormat("resumed %s at step %d", options().resume,
                              position_.step));
  if (options().eval_only) return absl::OkStatus();
  return sampler_->Restore(position_.sampler);
}

absl::Status Loop::Train() {
  int64_t epoch = position_.sampler.epoch;
  if (done()) {
    report_.Say(absl::StrFormat(
        "nothing left to train: step %d of %d is done; give more --epochs or "
        "--max_steps",
        position_.step, steps_in_all_));
    return Evaluate(epoch);
  }
  for (; !done(); ++epoch) TANDEM_RETURN_IF_ERROR(TrainEpoch(epoch));
  return absl::OkStatus();
}

absl::Status Loop::TrainEpoch(int64_t epoch) {
  if (epoch == position_.sampler.epoch) {
    loader_->StartEpoch();  // from where the sampler stands
  } else {
    loader_->StartEpoch(epoch);
  }
  const int64_t first = position_.step;
  const int64_t steps =
      std::min(loader_->num_batches(), steps_in_all_ - position_.step);
  report_.StartProgress(
      absl::StrFormat("epoch %d/%d", epoch + 1, options().epochs), steps);
  last_step_end_ = Clock::now();
  while (position_.step < first + steps) {
    TANDEM_ASSIGN_OR_RETURN(const std::optional<Batch> batch, loader_->Next());
    TANDEM_RETURN_IF_ERROR(TrainStep(*batch, epoch));
    report_.ShowProgress(position_.step - first,
                         absl::StrFormat("loss %.4f", meter_.score().loss()));
    const bool due =
        options().save_every > 0 && position_.step % options().save_every == 0;
    if (due) TANDEM_RETURN_IF_ERROR(Save());
  }
  report_.EndProgress();
  if (steps == 0) return absl::OkStatus();
  // First of all: nothing that comes now may cost the epoch.
  TANDEM_RETURN_IF_ERROR(Save());
  return Evaluate(epoch);
}

absl::Status Loop::TrainStep(const Batch& batch, int64_t epoch) {
  if (InterruptSignal() != 0) return InterruptError();
  if (summary_.startup_ms == 0) summary_.startup_ms = MillisecondsSinceStart();
  // The line before has been reported, the next one begins.
  if (position_.step % options().log_every == 0) meter_.Reset();
  const double learning_rate = LearningRateAt(learning_rate_, position_.step);
  SetFaultContext(job_.launch.rank, position_.step + 1);
  const bool traced = !options().trace_file.empty() &&
                      position_.step + 1 == options().trace_step;
  if (traced) Trace::OfProcess().Start();
  TANDEM_ASSIGN_OR_RETURN(const Score score,
                          job_.strategy->TrainStep(batch, learning_rate));
  if (traced) {
    TANDEM_RETURN_IF_ERROR(WriteStepTrace(options().trace_file, *job_.world));
  }
  const Clock::time_point now = Clock::now();
  meter_.Add(score, SamplesOfStep(epoch), now - last_step_end_,
             job_.strategy->AddedLosses());
  last_step_end_ = now;
  ++position_.step;
  position_.sampler = loader_->state();
  ++summary_.steps;
  if (!std::isfinite(score.loss())) {
    return absl::OutOfRangeError(absl::StrFormat(
        "the loss of step %d is %f: training has diverged; try a smaller "
        "--learning_rate than %g, or --clip_grad_norm",
        position_.step, score.loss(), ResolvedLearningRate(options())));
  }
  const bool due = position_.step % options().log_every == 0;
  if (due || done()) return ReportSteps(epoch, learning_rate);
  return absl::OkStatus();
}

// Of the one that comes next; those that padding repeats count once.
int64_t Loop::SamplesOfStep(int64_t epoch) const {
  const SamplerState& before = position_.sampler;
  const int64_t taken = before.epoch == epoch ? before.position : 0;
  return std::min(options().batch_size, job_.train_data->size() - taken);
}

absl::Status Loop::ReportSteps(int64_t epoch, double learning_rate) {
  StepReport report;
  report.epoch = epoch + 1;
  report.step = position_.step;
  report.score = meter_.score();
  report.added_losses = meter_.added_losses();
  report.learning_rate = learning_rate;
  report.samples_per_s = meter_.samples_per_s();
  report.step_ms = meter_.step_ms();
  summary_.last_steps = report.score;
  return report_.ShowStep(report, steps_in_all_);
}

absl::Status Loop::Evaluate(int64_t epoch) {
  TANDEM_RETURN_IF_ERROR(job_.strategy->Synchronise());
  TANDEM_ASSIGN_OR_RETURN(summary_.test, EvaluateTestSet(job_, report_));
  return report_.ShowEvaluation(epoch + 1, summary_.test);
}

absl::Status Loop::Save() {
  if (options().save_dir.empty() || saved_step_ == position_.step) {
    return absl::OkStatus();
  }
  TANDEM_RETURN_IF_ERROR(job_.strategy->Synchronise());
  TANDEM_ASSIGN_OR_RETURN(summary_.checkpoint, SaveJob(job_, position_));
  saved_step_ = position_.step;
  // Saving is not part of the next step's time.
  last_step_end_ = Clock::now();
  return absl::OkStatus();
}

absl::Status Loop::Summarise() {
  summary_.samples_per_s = meter_.total_samples_per_s();
  summary_.step_ms_median = meter_.median_step_ms();
  summary_.ranks = job_.world->size();
  summary_.peak_rss_mib = PeakRssMib();
  if (options().ddp.ddp_logging) {
    summary_.measurements = job_.strategy->Measurements();
  }
  TANDEM_ASSIGN_OR_RETURN(summary_.device_memory,
                          PeakMemory(job_.devices, *job_.world));
  WeightsHasher hasher;
  TANDEM_RETURN_IF_ERROR(job_.strategy->StreamState(StateParts(), hasher));
  if (job_.speaks()) summary_.weights_sha256 = hasher.HexDigest();
  TANDEM_ASSIGN_OR_RETURN(const std::string times,
                          job_.strategy->DescribeTimes());
  if (!times.empty()) report_.Say(times);
  return report_.ShowSummary(summary_);
}

}  // namespace

absl::Status RunJob(Job& job, Report& report) {
  const JobDescription settings = DescribeJob(job);
  TANDEM_RETURN_IF_ERROR(report.ShowSettings(settings.shown, settings.all));
  if (!job.partition.empty()) report.Say(job.partition);
  return Loop(job, report).Run();
}

}  // namespace tandem
