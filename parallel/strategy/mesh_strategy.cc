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
    : model_(std::make_unique<MeshModel>(options)), times_(options.schedule) {}

std::string MeshStrategyImpl::name() const {
  const bool one = model_->groups.replicas() == 1;
  const bool sequential = model_->options.schedule.name == kSequential;
  if (model_->options.schedule.devices() == 1) return one ? "single" : "ddp";
  if (sequential) return one ? "model_parallel" : "ddp";
  return one ? "pipeline" : "hybrid";
}

bool MeshStrategyImpl::averages_gradients() const {
  return !averager_ || averager_->in_warmup();
}

bool MeshStrategyImpl::ends_alike() const {
  return averages_gradients() || averager_->averages_now();
}

void MeshStrategyImpl::EndStep() {
  alike_ = ends_alike();
  ++step_;
  if (averager_) averager_->set_step(step_);
}

LossScale* MeshStrategyImpl::loss_scale() {
  return loss_scale_ ? &loss_scale_->known() : nullptr;
}

void MeshStrategyImpl::SetMeanWeight(MeanWeight mean) {
  model_->shares->set_mean_weight(std::move(mean));
}

void MeshStrategyImpl::ResumeAt(int64_t steps) {
  step_ = steps;
  if (averager_) averager_->set_step(steps);
}

std::map<std::string, double> MeshStrategyImpl::AuxiliaryLosses() const {
  return auxiliary_losses_.sums();
}

std::map<std::string, double> MeshStrategyImpl::NamedSums() const {
  return named_sums_.sums();
}

absl::Status MeshStrategyImpl::OnDevices(
    const PipelineExecutor::DeviceWork& work) {
  return model_->executor->OnDevices(work);
}

absl::Status MeshStrategyImpl::Compute(const Batch& batch,
                                       std::optional<double> learning_rate,
                                       bool defers_scores) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<Batch> microbatches,
                          model_->shares->Microbatches(batch));
  model_->SetTraining(true);
  const bool at_end = !statistics_.empty() && model_->shares->SomeHaveFewer();
  for (TrainedStage* stage : model_->AllStages()) {
    TANDEM_RETURN_IF_ERROR(stage->Prepare(
        {averages_gradients(), at_end,
         /*shows_gradients=*/measures_norm_ || !learning_rate.has_value()}));
  }
  for (const auto& stage : model_->executor->stages()) {
    if (stage == nullptr || stage->records() == nullptr) continue;
    stage->records()->Begin(static_cast<int>(microbatches.size()));
  }
  TANDEM_ASSIGN_OR_RETURN(const StepSamples samples,
                          model_->shares->SamplesOfStep(microbatches, step_));
  // Where nothing else is asked for, each device updates its stages itself.
  StepGradients gradients = {GradientsOf(model_->stages)};
  gradients.defers_scores = defers_scores;
  if (loss_scale_) {
    loss_scale_->Begin();
    for (size_t i = 0; i < model_->options.devices.size(); ++i) {
      gradients.loss_scales.push_back(loss_scale_->scale(i));
    }
  }
  if (!statistics_.empty()) {
    const int most = static_cast<int>(model_->shares->MostMicrobatches());
    gradients.microbatches = most;
    gradients.absent = [this, most](const Action& action) {
      return ActAbsent(action, most);
    };
    for (const auto& stage : statistics_) {
      if (stage != nullptr) stage->Begin();
    }
  }
  if (learning_rate.has_value()) {
    gradients.after_device = [&](int device) {
      return UpdateDevice(device, std::nullopt, learning_rate);
    };
  }
  const absl::StatusOr<Score> score =
      model_->executor->TrainStep(microbatches, samples, gradients);
  if (!score.ok()) return Annotate(score.status(), "training step");
  pending_.push_back(StepToRead(batch, microbatches.size()));
  if (learning_rate.has_value()) {
    EndStep();
    return absl::OkStatus();
  }
  TANDEM_RETURN_IF_ERROR(tied_->Sum());
  TANDEM_RETURN_IF_ERROR(Unscale());
  halves_.EndFirst();
  return absl::OkStatus();
}

absl::Status MeshStrategyImpl::Run(const Batch& batch, double learning_rate,
                                   bool defers_scores) {
  const bool at_once = updates_at_once();
  TANDEM_RETURN_IF_ERROR(Compute(
      batch, at_once ? std::optional<double>(learning_rate) : std::nullopt,
      defers_scores));
  if (at_once) return absl::OkStatus();
  TANDEM_RETURN_IF_ERROR(halves_.BeginSecond());
  return Finish(learning_rate, /*submits=*/true);
}

absl::Status MeshStrategyImpl::Learn(const Batch& batch) {
  TANDEM_RETURN_IF_ERROR(GoOnApart());
  return model_->shares->Learn(batch.size, /*apart=*/!averages_gradients());
}

absl::Status MeshStrategyImpl::Submit(const Batch& batch, double learning_rate,
                                      bool defers_scores) {
  TANDEM_RETURN_IF_ERROR(halves_.CheckFirst());
  absl::Status done = Learn(batch);
  if (done.ok()) done = Run(batch, learning_rate, defers_scores);
  if (done.ok()) done = EndNorm();
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
  absl::Status done = Learn(batch);
  if (done.ok()) done = Compute(batch, std::nullopt, /*defers_scores=*/false);
  if (!done.ok()) {
    Abort(done);
    return done;
  }
  return ReadLast();
}

absl::Status MeshStrategyImpl::Update(double learning_rate) {
  TANDEM_RETURN_IF_ERROR(halves_.BeginSecond());
  const absl::Status done = Finish(learning_rate, /*submits=*/false);
  if (!done.ok()) Abort(done);
  return done;
}

absl::Status MeshStrategyImpl::SkipUpdate() {
  TANDEM_RETURN_IF_ERROR(halves_.BeginSecond());
  const absl::Status done = Finish(std::nullopt, /*submits=*/false);
  if (!done.ok()) Abort(done);
  return done;
}

absl::Status MeshStrategyImpl::Synchronize() const {
  TANDEM_RETURN_IF_ERROR(model_->groups.Synchronize());
  return SynchronizeParts();
}

absl::Status MeshStrategyImpl::SynchronizeParts() const {
  TANDEM_RETURN_IF_ERROR(model_->executor->Synchronize());
  TANDEM_RETURN_IF_ERROR(model_->groups.SynchronizeReplicas());
  return tied_->Synchronize();
}

void MeshStrategyImpl::Abort(const absl::Status& reason) {
  model_->groups.Abort(reason);
  model_->executor->Abort(reason);
  tied_->Abort(reason);
}

}  // namespace tandem
