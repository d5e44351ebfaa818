#include "parallel/strategy/mesh_training.h"

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/device/device_trace.h"
#include "core/instrument/trace.h"
#include "parallel/pipeline/executor.h"
#include "parallel/pipeline/training_step.h"
#include "parallel/strategy/stage/trained_stage.h"

namespace tandem {
namespace {

// What the host does in a step, for the trace. A device updates as soon as it
// has its gradients: the update begins with the last one's.
class HostPhases {
 public:
  HostPhases() : begun_(TraceEvent::Clock::now()) {}

  // A device begins; from its thread.
  void BeginUpdate() {
    if (!Trace::OfProcess().is_on()) return;
    absl::MutexLock lock(&mutex_);
    updated_ = TraceEvent::Clock::now();
  }

  void End() {
    if (!Trace::OfProcess().is_on()) return;
    absl::MutexLock lock(&mutex_);
    const TraceEvent::Clock::time_point now = TraceEvent::Clock::now();
    Add("forward/backward", begun_, updated_.value_or(now));
    if (updated_.has_value()) Add("update", *updated_, now);
  }

 private:
  static void Add(const char* name, TraceEvent::Clock::time_point begin,
                  TraceEvent::Clock::time_point end) {
    Trace::OfProcess().Add({kHostTrack, name, "", begin, end, {}});
  }

  const TraceEvent::Clock::time_point begun_;
  absl::Mutex mutex_;
  std::optional<TraceEvent::Clock::time_point> updated_ ABSL_GUARDED_BY(mutex_);
};

std::vector<StageGradients*> AllGradients(const MeshModel& model) {
  std::vector<StageGradients*> all;
  for (const auto& stage : model.stages) {
    all.push_back(stage == nullptr ? nullptr : stage->gradients());
  }
  return all;
}

// Part by part, each for the device's stages in their order, so that all
// replicas come to a part's collectives in one order.
absl::Status UpdateDevice(const MeshModel& model, const StepPartList& parts,
                          const StepContext& step, int device) {
  const std::vector<c10::Device>& devices = model.options.devices;
  const std::string track = DeviceTrack(device);
  const DeviceTraceScope slice(
      track, "update", devices[static_cast<size_t>(device) % devices.size()]);
  const std::vector<int>& stages =
      model.options.schedule.stages_of[static_cast<size_t>(device)];
  for (const auto& part : parts) {
    for (int i : stages) TANDEM_RETURN_IF_ERROR(part->Update(step, i));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status MeshTraining::SubmitStep(const Batch& batch,
                                      double learning_rate) {
  TANDEM_ASSIGN_OR_RETURN(StepContext step, Plan());
  step.learning_rate = learning_rate;
  step.gradients.defers_scores = true;
  TANDEM_RETURN_IF_ERROR(OrAbort(Compute(batch, step)));
  return OrAbort(Finish(step));
}

absl::StatusOr<Score> MeshTraining::TrainStep(const Batch& batch,
                                              double learning_rate) {
  TANDEM_ASSIGN_OR_RETURN(StepContext step, Plan());
  step.learning_rate = learning_rate;
  TANDEM_RETURN_IF_ERROR(OrAbort(Compute(batch, step)));
  TANDEM_RETURN_IF_ERROR(OrAbort(Finish(step)));
  return ReadLast();
}

absl::StatusOr<Score> MeshTraining::ComputeGradients(const Batch& batch) {
  TANDEM_ASSIGN_OR_RETURN(halved_, Plan());
  halved_->updates_at_once = false;
  TANDEM_RETURN_IF_ERROR(OrAbort(Compute(batch, *halved_)));
  halves_.EndFirst();
  halved_->pending = nullptr;
  return ReadLast();
}

absl::Status MeshTraining::Update(double learning_rate) {
  return SecondHalf(learning_rate);
}

absl::Status MeshTraining::SkipUpdate() { return SecondHalf(std::nullopt); }

absl::Status MeshTraining::SecondHalf(std::optional<double> learning_rate) {
  TANDEM_RETURN_IF_ERROR(halves_.BeginSecond());
  halved_->learning_rate = learning_rate;
  return OrAbort(Finish(*halved_));
}

absl::StatusOr<bool> MeshTraining::EndBrokenStep() {
  if (!broken_) return false;
  const StepContext step = *std::exchange(broken_, std::nullopt);
  TANDEM_RETURN_IF_ERROR(UpdateDevices(step));
  ++steps_;
  return true;
}

absl::Status MeshTraining::OrAbort(absl::Status done) {
  if (!done.ok()) Abort(done);
  return done;
}

absl::StatusOr<StepContext> MeshTraining::Plan() const {
  TANDEM_RETURN_IF_ERROR(halves_.CheckFirst());
  StepContext step;
  step.measures_norm = measures_norm_;
  for (const auto& part : parts()) part->Plan(step);
  return step;
}

absl::Status MeshTraining::Compute(const Batch& batch, StepContext& step) {
  HostPhases phases;
  broken_.reset();
  BatchShares& shares = *model().shares;
  TANDEM_RETURN_IF_ERROR(
      shares.ExchangeSizes(batch.size, /*apart=*/!step.averages_gradients));
  TANDEM_ASSIGN_OR_RETURN(const std::vector<Batch> microbatches,
                          shares.Microbatches(batch));
  step.samples = batch.size;
  step.microbatches = static_cast<int>(microbatches.size());
  model().SetTraining(true);
  for (const auto& part : parts()) TANDEM_RETURN_IF_ERROR(part->Begin(step));
  for (TrainedStage* stage : model().AllStages()) {
    TANDEM_RETURN_IF_ERROR(stage->Prepare(
        {step.averages_gradients, step.reduces_at_end,
         /*shows_gradients=*/step.measures_norm || !step.updates_at_once}));
  }
  TANDEM_ASSIGN_OR_RETURN(const StepSamples samples,
                          shares.SamplesOfStep(microbatches, steps_));
  step.gradients.of_stages = AllGradients(model());
  if (step.updates_at_once) {
    step.gradients.after_device = [&](int device) {
      phases.BeginUpdate();
      return UpdateDevice(model(), parts(), step, device);
    };
  }
  const absl::StatusOr<Score> score =
      model().executor->TrainStep(microbatches, samples, step.gradients);
  if (!score.ok()) return Annotate(score.status(), "training step");
  phases.End();
  pending_.emplace_back();
  step.pending = &pending_.back();
  step.pending->number = steps_ + 1;
  step.pending->alike = step.ends_alike;
  step.pending->losses = model().executor->TakeLosses();
  for (const auto& part : parts()) {
    TANDEM_RETURN_IF_ERROR(part->AfterBackward(step));
  }
  return absl::OkStatus();
}

absl::Status MeshTraining::Finish(StepContext& step) {
  if (!step.updates_at_once) {
    const TraceScope slice(kHostTrack, "update");
    for (const auto& part : parts()) {
      absl::Status ready = part->BeforeUpdate(step);
      if (!ready.ok() && step.is_local) broken_ = step;
      TANDEM_RETURN_IF_ERROR(ready);
    }
    TANDEM_RETURN_IF_ERROR(UpdateDevices(step));
  }
  ++steps_;
  for (const auto& part : parts()) TANDEM_RETURN_IF_ERROR(part->End(step));
  if (step.pending != nullptr) measures_norm_ = false;
  return absl::OkStatus();
}

absl::Status MeshTraining::UpdateDevices(const StepContext& step) {
  return model().executor->OnDevices(
      [&](int device) { return UpdateDevice(model(), parts(), step, device); });
}

absl::Status MeshTraining::ReadPending() {
  std::vector<at::Tensor> numbers;
  for (const PendingStep& step : pending_) {
    for (const auto& part : parts()) part->AddNumbers(step, &numbers);
  }
  std::vector<double> values;
  if (!numbers.empty()) {
    TANDEM_ASSIGN_OR_RETURN(values, model().executor->Read(numbers));
  }
  const double* next = values.data();
  for (PendingStep& step : pending_) {
    StepScore score;
    for (const auto& part : parts()) {
      TANDEM_RETURN_IF_ERROR(part->Read(step, next, &score));
    }
    last_ = score;
    scores_.push_back(std::move(score));
  }
  pending_.clear();
  for (const auto& part : parts()) part->AfterReading();
  return absl::OkStatus();
}

// A failure is that of what was there first: what waits on streams for the same
// ranks was before the loss.
absl::Status MeshTraining::ReadOrAbort() {
  absl::Status read = ReadPending();
  if (read.ok()) return read;
  const absl::Status before = SynchronizeStep();
  if (!before.ok()) read = before;
  Abort(read);
  return read;
}

absl::StatusOr<Score> MeshTraining::ReadLast() {
  TANDEM_RETURN_IF_ERROR(ReadOrAbort());
  const Score score = scores_.back().score;
  scores_.pop_back();
  return score;
}

absl::StatusOr<std::vector<StepScore>> MeshTraining::TakeScores() {
  TANDEM_RETURN_IF_ERROR(ReadOrAbort());
  return std::exchange(scores_, {});
}

std::map<std::string, double> MeshTraining::AuxiliaryLosses() const {
  return last_.auxiliary_losses;
}

std::map<std::string, double> MeshTraining::NamedSums() const {
  return last_.sums;
}

LossScale* MeshTraining::loss_scale() {
  for (const auto& part : parts()) {
    if (LossScale* const scale = part->loss_scale()) return scale;
  }
  return nullptr;
}

void MeshTraining::SetMeanWeight(MeanWeight mean) {
  model().shares->set_mean_weight(std::move(mean));
}

absl::Status MeshTraining::SetUnevenDivision(UnevenDivision division) {
  if (!model().options.uneven_batches) {
    return absl::FailedPreconditionError(
        "replicas have batches of one size: ask for uneven_batches");
  }
  if (model().options.reproducible && division != UnevenDivision::kSamples) {
    return absl::InvalidArgumentError(
        "reproducible divides by samples alone, whatever the replicas");
  }
  model().options.uneven_division = division;
  model().shares->set_division(division);
  return absl::OkStatus();
}

UnevenDivision MeshTraining::uneven_division() const {
  return model().options.uneven_division;
}

void MeshTraining::ResumeAt(int64_t steps) {
  steps_ = steps;
  for (const auto& part : parts()) part->ResumeAt(steps);
}

absl::Status MeshTraining::Synchronise() {
  absl::Status done;
  for (const auto& part : parts()) {
    if (done.ok()) done = part->ShowAlike();
  }
  return OrAbort(done);
}

}  // namespace tandem
