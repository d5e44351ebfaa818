#include "tools/trainer/training_set.h"

#include <algorithm>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"

namespace tandem {
namespace {

// The sampler of replica `rank` of `replicas`.
absl::StatusOr<std::shared_ptr<DistributedSampler>> MakeSampler(
    const Job& job, int64_t replicas, int64_t rank) {
  const TrainOptions& options = job.options;
  DistributedSamplerOptions sampling;
  sampling.num_replicas = replicas;
  sampling.rank = rank;
  sampling.seed = options.seed;
  if (options.pipeline.reproducible) {
    sampling.slices_of = job.batch_size_per_replica * replicas;
    sampling.drop_last = options.drop_last;
    sampling.even = options.drop_last;
  }
  if (options.ddp.uneven_inputs == "join") sampling.even = false;
  return DistributedSampler::Create(job.data.train->size(), sampling);
}

LoaderOptions LoadingOptions(const Job& job) {
  LoaderOptions loading;
  loading.batch_size = job.batch_size_per_replica;
  loading.drop_last = job.options.drop_last;
  loading.parts = {job.strategy->takes_inputs(), job.strategy->takes_targets()};
  loading.workers = job.options.workers;
  loading.pin_memory = job.options.devices.device != "cpu";
  return loading;
}

// Steps of a whole epoch: the sampler stands at the beginning of its first.
absl::StatusOr<int64_t> StepsPerEpoch(const Job& job,
                                      const DistributedSampler& sampler) {
  const int64_t samples = job.data.train->size();
  const int64_t batch =
      job.batch_size_per_replica * sampler.options().num_replicas;
  // Padding gives no replica more batches.
  const int64_t steps = job.options.drop_last
                            ? sampler.num_samples() / job.batch_size_per_replica
                            : (samples + batch - 1) / batch;
  if (steps > 0) return steps;
  return absl::InvalidArgumentError(absl::StrCat(
      BatchSizeAsGiven(job.options), ": the training set has only ", samples,
      " samples, not one full batch (--nodrop_last would take them)"));
}

// `most`: 0 for no bound.
int64_t AtMost(int64_t most, int64_t steps) {
  return most > 0 ? std::min(most, steps) : steps;
}

LearningRateDecay RequestedDecay(const std::string& lr_schedule) {
  if (lr_schedule == "step") return LearningRateDecay::kStep;
  if (lr_schedule == "cosine") return LearningRateDecay::kCosine;
  if (lr_schedule == "linear") return LearningRateDecay::kLinear;
  if (lr_schedule == "wsd") return LearningRateDecay::kWarmupStableDecay;
  return LearningRateDecay::kConstant;
}

LearningRateOptions RateOptions(const TrainOptions& options,
                                int64_t steps_in_all) {
  LearningRateOptions rate;
  rate.learning_rate = ResolvedLearningRate(options);
  rate.warmup_steps = options.lr_warmup_steps;
  rate.decay = RequestedDecay(options.lr_schedule);
  rate.decay_steps = rate.decay == LearningRateDecay::kWarmupStableDecay
                         ? options.lr_wsd_decay_steps
                         : options.lr_step_size;
  if (options.lr_wsd_decay_style == "sqrt") {
    rate.decay_style = DecayStyle::kSqrt;
  }
  if (options.lr_wsd_decay_style == "cosine") {
    rate.decay_style = DecayStyle::kCosine;
  }
  rate.gamma = options.lr_gamma;
  rate.total_steps = steps_in_all;
  rate.final_learning_rate = options.min_learning_rate;
  return rate;
}

}  // namespace

absl::StatusOr<TrainingPlan> PlanTraining(const Job& job) {
  const int64_t replicas = job.launched_replicas();
  TANDEM_ASSIGN_OR_RETURN(const auto sampler,
                          MakeSampler(job, replicas, /*rank=*/0));
  TANDEM_ASSIGN_OR_RETURN(const int64_t per_epoch,
                          StepsPerEpoch(job, *sampler));
  TrainingPlan plan;
  plan.steps = AtMost(job.options.max_steps, job.options.epochs * per_epoch);
  plan.steps_per_epoch = per_epoch;
  plan.samples_per_epoch =
      std::min(job.data.train->size(),
               per_epoch * replicas * job.batch_size_per_replica);
  TANDEM_RETURN_IF_ERROR(
      Annotate(ValidateLearningRate(RateOptions(job.options, plan.steps)),
               absl::StrCat("--lr_schedule=", job.options.lr_schedule)));
  return plan;
}

absl::StatusOr<TrainingSet> TrainingSet::Open(const Job& job) {
  TrainingSet set;
  set.samples_ = job.data.train->size();
  set.batch_size_ = job.batch_size();
  set.joins_ = job.options.ddp.uneven_inputs == "join";
  TANDEM_ASSIGN_OR_RETURN(
      set.sampler_, MakeSampler(job, job.mesh.replicas(), job.data_rank()));
  TANDEM_ASSIGN_OR_RETURN(
      set.loader_,
      Loader::Create(job.data.train, set.sampler_, LoadingOptions(job)));
  TANDEM_ASSIGN_OR_RETURN(const TrainingPlan plan, PlanTraining(job));
  set.steps_in_all_ = plan.steps;
  set.samples_per_epoch_ = plan.samples_per_epoch;
  set.learning_rate_ = RateOptions(job.options, set.steps_in_all_);
  return set;
}

absl::Status TrainingSet::Restore(const SamplerState& state) {
  begin_ = state;
  return sampler_->Restore(state);
}

absl::Status TrainingSet::TakeOver(const Job& job, const SamplerState& state,
                                   int64_t done) {
  const TrainOptions& options = job.options;
  // Steps of a whole epoch: the sampler does not stand in the midst of one yet.
  TANDEM_ASSIGN_OR_RETURN(const int64_t per_epoch,
                          StepsPerEpoch(job, *sampler_));
  TANDEM_RETURN_IF_ERROR(Restore(state));
  const int64_t left =
      options.drop_last
          ? sampler_->num_samples() / job.batch_size_per_replica
          : (samples_ - state.position + batch_size_ - 1) / batch_size_;
  steps_in_all_ =
      AtMost(options.max_steps,
             done + left + (options.epochs - state.epoch - 1) * per_epoch);
  return absl::OkStatus();
}

int64_t TrainingSet::StartEpoch(int64_t epoch, int64_t done) {
  if (epoch == begin_.epoch) {
    loader_->StartEpoch();  // from where the sampler stands
  } else {
    loader_->StartEpoch(epoch);
  }
  start_ = sampler_->state();
  taken_ = 0;
  steps_ = joins_ ? (samples_ - start_.position + batch_size_ - 1) / batch_size_
                  : loader_->num_batches();
  left_ = std::min(steps_, steps_in_all_ - done);
  return left_;
}

// This replica's loader may be at its end before others', or have had nothing
// at all.
SamplerState TrainingSet::state() const {
  if (!joins_ || taken_ == 0) return taken_ == 0 ? start_ : loader_->state();
  if (taken_ == steps_) return {start_.epoch, samples_};
  const int64_t replicas = sampler_->options().num_replicas;
  return sampler_->After(start_, taken_ * (batch_size_ / replicas));
}

absl::StatusOr<Batch> TrainingSet::Next() {
  TANDEM_ASSIGN_OR_RETURN(std::optional<Batch> batch, loader_->Next());
  ++taken_;
  --left_;
  if (batch.has_value()) return *std::move(batch);
  if (joins_) return Batch();  // others have one
  return absl::InternalError("more steps than the epoch has batches");
}

int64_t TrainingSet::StepSampleCount(const SamplerState& before,
                                     int64_t epoch) const {
  const int64_t taken = before.epoch == epoch ? before.position : 0;
  return std::min(batch_size_, samples_ - taken);
}

int64_t TrainingSet::SamplesSoFar() const {
  // Not by the loader's state: behind its last batch that is the epoch's end,
  // also where samples are dropped.
  const int64_t of_epoch =
      std::min(start_.position + taken_ * batch_size_, samples_);
  return start_.epoch * samples_per_epoch_ + of_epoch;
}

}  // namespace tandem
