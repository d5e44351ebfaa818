#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "parallel/schedule/sequential.h"
#include "parallel/strategy/mesh_strategy_impl.h"

namespace tandem {
namespace {

std::vector<StageGradients*> GradientsOf(
    const std::vector<std::unique_ptr<TrainedStage>>& stages) {
  std::vector<StageGradients*> all;
  for (const auto& stage : stages) {
    all.push_back(stage == nullptr ? nullptr : stage->gradients());
  }
  return all;
}

}  // namespace

MeshStrategyImpl::MeshStrategyImpl(const MeshStrategyOptions& options)
    : model_(std::make_unique<MeshModel>(options)) {}

std::string MeshStrategyImpl::name() const {
  const bool one = model_->groups.replicas() == 1;
  const bool sequential = model_->options.schedule.name == kSequential;
  if (model_->options.schedule.devices() == 1) return one ? "single" : "ddp";
  if (sequential) return one ? "model_parallel" : "ddp";
  return one ? "pipeline" : "hybrid";
}

LossScale* MeshStrategyImpl::loss_scale() {
  for (const auto& part : parts_) {
    if (LossScale* const scale = part->loss_scale()) return scale;
  }
  return nullptr;
}

void MeshStrategyImpl::SetMeanWeight(MeanWeight mean) {
  model_->shares->set_mean_weight(std::move(mean));
}

absl::Status MeshStrategyImpl::SetUnevenDivision(UnevenDivision division) {
  if (!model_->options.uneven_batches) {
    return absl::FailedPreconditionError(
        "replicas have batches of one size: ask for uneven_batches");
  }
  if (model_->options.reproducible && division != UnevenDivision::kSamples) {
    return absl::InvalidArgumentError(
        "reproducible divides by samples alone, whatever the replicas");
  }
  model_->options.uneven_division = division;
  model_->shares->set_division(division);
  return absl::OkStatus();
}

UnevenDivision MeshStrategyImpl::uneven_division() const {
  return model_->options.uneven_division;
}

void MeshStrategyImpl::ResumeAt(int64_t steps) {
  step_ = steps;
  for (const auto& part : parts_) part->ResumeAt(steps);
}

std::map<std::string, double> MeshStrategyImpl::AuxiliaryLosses() const {
  return last_.auxiliary_losses;
}

std::map<std::string, double> MeshStrategyImpl::NamedSums() const {
  return last_.sums;
}

std::vector<std::pair<std::string, double>> MeshStrategyImpl::Measurements()
    const {
  std::vector<std::pair<std::string, double>> all;
  for (const auto& part : parts_) {
    for (auto& each : part->Measurements()) all.push_back(std::move(each));
  }
  return all;
}

absl::StatusOr<std::string> MeshStrategyImpl::DescribeTimes() {
  std::string all;
  for (const auto& part : parts_) {
    TANDEM_ASSIGN_OR_RETURN(const std::string text, part->DescribeTimes());
    all += text;
  }
  return all;
}

absl::Status MeshStrategyImpl::OnDevices(
    const PipelineExecutor::DeviceWork& work) {
  return model_->executor->OnDevices(work);
}

StepContext MeshStrategyImpl::Plan() const {
  StepContext step;
  step.measures_norm = measures_norm_;
  for (const auto& part : parts_) part->Plan(step);
  return step;
}

absl::Status MeshStrategyImpl::Compute(const Batch& batch, StepContext& step) {
  TANDEM_RETURN_IF_ERROR(
      model_->shares->Learn(batch.size, /*apart=*/!step.averages_gradients));
  TANDEM_ASSIGN_OR_RETURN(const std::vector<Batch> microbatches,
                          model_->shares->Microbatches(batch));
  step.samples = batch.size;
  step.microbatches = static_cast<int>(microbatches.size());
  model_->SetTraining(true);
  for (const auto& part : parts_) TANDEM_RETURN_IF_ERROR(part->Begin(step));
  for (TrainedStage* stage : model_->AllStages()) {
    TANDEM_RETURN_IF_ERROR(stage->Prepare(
        {step.averages_gradients, step.reduces_at_end,
         /*shows_gradients=*/step.measures_norm || !step.updates_at_once}));
  }
  TANDEM_ASSIGN_OR_RETURN(const StepSamples samples,
                          model_->shares->SamplesOfStep(microbatches, step_));
  StepGradients& gradients = step.gradients;
  gradients.of_stages = GradientsOf(model_->stages);
  if (step.updates_at_once) {
    gradients.after_device = [&](int device) {
      return UpdateDevice(step, device);
    };
  }
  const absl::StatusOr<Score> score =
      model_->executor->TrainStep(microbatches, samples, gradients);
  if (!score.ok()) return Annotate(score.status(), "training step");
  pending_.emplace_back();
  step.pending = &pending_.back();
  step.pending->number = step_ + 1;
  step.pending->alike = step.ends_alike;
  for (const auto& part : parts_) {
    TANDEM_RETURN_IF_ERROR(part->AfterBackward(step));
  }
  return absl::OkStatus();
}

absl::Status MeshStrategyImpl::End(StepContext& step) {
  ++step_;
  for (const auto& part : parts_) TANDEM_RETURN_IF_ERROR(part->End(step));
  if (step.pending != nullptr) measures_norm_ = false;
  return absl::OkStatus();
}

absl::Status MeshStrategyImpl::Submit(const Batch& batch, double learning_rate,
                                      bool defers_scores) {
  TANDEM_RETURN_IF_ERROR(halves_.CheckFirst());
  StepContext step = Plan();
  step.learning_rate = learning_rate;
  step.gradients.defers_scores = defers_scores;
  absl::Status done = Compute(batch, step);
  if (done.ok() && !step.updates_at_once) done = Finish(step);
  if (done.ok()) done = End(step);
  if (!done.ok()) Abort(done);
  return done;
}

absl::Status MeshStrategyImpl::SubmitStep(const Batch& batch,
                                          double learning_rate) {
  return Submit(batch, learning_rate, /*defers_scores=*/true);
}

absl::StatusOr<Score> MeshStrategyImpl::TrainStep(const Batch& batch,
                                                  double learning_rate) {
  TANDEM_RETURN_IF_ERROR(Submit(batch, learning_rate, /*defers_scores=*/false));
  return ReadLast();
}

absl::StatusOr<Score> MeshStrategyImpl::ComputeGradients(const Batch& batch) {
  TANDEM_RETURN_IF_ERROR(halves_.CheckFirst());
  halved_ = Plan();
  halved_->updates_at_once = false;
  const absl::Status done = Compute(batch, *halved_);
  if (!done.ok()) {
    Abort(done);
    return done;
  }
  halves_.EndFirst();
  halved_->pending = nullptr;
  return ReadLast();
}

absl::Status MeshStrategyImpl::SecondHalf(std::optional<double> learning_rate) {
  TANDEM_RETURN_IF_ERROR(halves_.BeginSecond());
  halved_->learning_rate = learning_rate;
  absl::Status done = Finish(*halved_);
  if (done.ok()) done = End(*halved_);
  if (!done.ok()) Abort(done);
  return done;
}

absl::Status MeshStrategyImpl::Update(double learning_rate) {
  return SecondHalf(learning_rate);
}

absl::Status MeshStrategyImpl::SkipUpdate() { return SecondHalf(std::nullopt); }

absl::Status MeshStrategyImpl::Synchronize() const {
  TANDEM_RETURN_IF_ERROR(model_->groups.Synchronize());
  return SynchronizeParts();
}

absl::Status MeshStrategyImpl::SynchronizeParts() const {
  TANDEM_RETURN_IF_ERROR(model_->executor->Synchronize());
  TANDEM_RETURN_IF_ERROR(model_->groups.SynchronizeReplicas());
  for (const auto& part : parts_) TANDEM_RETURN_IF_ERROR(part->Synchronize());
  return absl::OkStatus();
}

void MeshStrategyImpl::Abort(const absl::Status& reason) {
  model_->groups.Abort(reason);
  model_->executor->Abort(reason);
  for (const auto& part : parts_) part->Abort(reason);
}

}  // namespace tandem
