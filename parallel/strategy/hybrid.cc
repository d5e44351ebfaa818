#include <ATen/ops/empty.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/device/host_numbers.h"
#include "parallel/strategy/hybrid_strategy.h"
#include "parallel/strategy/score_numbers.h"

namespace tandem {

HybridStrategy::HybridStrategy(const HybridOptions& options)
    : options_(options), times_(options_.schedule) {}

std::string HybridStrategy::name() const {
  const bool one_pipeline =
      groups_.replicas() == 1 && options_.schedule.devices() > 1;
  return one_pipeline ? "pipeline" : "hybrid";
}

std::vector<TrainedStage*> HybridStrategy::AllStages() const {
  std::vector<TrainedStage*> stages;
  for (const auto& stage : stages_) {
    if (stage != nullptr) stages.push_back(stage.get());
  }
  return stages;
}

FlatBufferList HybridStrategy::AllBuffers() const {
  std::vector<FlatBuffer*> all;
  for (const TrainedStage* stage : AllStages()) {
    for (FlatBuffer* buffer : stage->all()) all.push_back(buffer);
  }
  return FlatBufferList(all);
}

std::vector<StageGradients*> HybridStrategy::AllGradients() const {
  std::vector<StageGradients*> all;
  for (const auto& stage : stages_) {
    all.push_back(stage == nullptr ? nullptr : stage->gradients());
  }
  return all;
}

absl::Status HybridStrategy::SumAuxiliaryLosses() {
  const int64_t count = options_.schedule.microbatches;
  const int replicas = groups_.replicas();
  // A pass's weight is its share of the step's samples, but for what makes a
  // mean over replicas of it.
  const double share = options_.reproducible ? 1 : 1.0 / replicas;
  std::vector<LossSums::Part> parts;
  std::vector<double> weights;
  std::vector<at::Tensor> losses;
  for (const auto& stage : executor_->stages()) {
    if (stage == nullptr) continue;
    for (const AuxiliaryLoss& each : stage->TakeAuxiliaryLosses()) {
      parts.push_back(
          {each.name, groups_.replica() * count + each.microbatch, 0});
      weights.push_back(each.weight);
      losses.push_back(each.loss);
    }
  }
  TANDEM_ASSIGN_OR_RETURN(const std::vector<double> values,
                          CatchTorchOr([&] { return ReadNumbers(losses); }));
  for (size_t i = 0; i < parts.size(); ++i) {
    parts[i].value = values[i] * weights[i] * share;
  }
  return auxiliary_losses_.Sum(parts, replicas * count, groups_.world());
}

absl::StatusOr<Score> HybridStrategy::Compute(
    const Batch& batch, std::optional<double> learning_rate) {
  TANDEM_RETURN_IF_ERROR(shares_->Learn(batch.size));
  TANDEM_ASSIGN_OR_RETURN(const std::vector<Batch> microbatches,
                          shares_->Microbatches(batch));
  SetTraining(executor_->stages(), true);
  for (TrainedStage* stage : AllStages()) {
    TANDEM_RETURN_IF_ERROR(stage->Prepare());
  }
  for (const auto& stage : executor_->stages()) {
    if (stage == nullptr || stage->records() == nullptr) continue;
    stage->records()->Begin(static_cast<int>(microbatches.size()));
  }
  TANDEM_ASSIGN_OR_RETURN(const StepSamples samples,
                          shares_->SamplesOfStep(microbatches, step_));
  // Where nothing else is asked for, each device updates its stages itself.
  StepGradients gradients = {AllGradients(), nullptr};
  if (learning_rate.has_value()) {
    gradients.after_device = [&](int device) {
      return UpdateDevice(device, std::nullopt, learning_rate);
    };
  }
  const absl::StatusOr<Score> score =
      executor_->TrainStep(microbatches, samples, gradients);
  if (!score.ok()) return Annotate(score.status(), "training step");
  const auto usual = static_cast<size_t>(options_.schedule.microbatches);
  if (microbatches.size() == usual) Measure(batch);
  TANDEM_RETURN_IF_ERROR(SumAuxiliaryLosses());
  if (learning_rate.has_value()) {
    ++step_;
  } else {
    TANDEM_RETURN_IF_ERROR(tied_->Sum());
    halves_.EndFirst();
  }
  return options_.reproducible ? SumInOrder() : Sum(*score);
}

absl::StatusOr<Score> HybridStrategy::TrainStep(const Batch& batch,
                                                double learning_rate) {
  if (!updates_at_once()) {
    absl::StatusOr<Score> score = ComputeGradients(batch);
    if (score.ok()) TANDEM_RETURN_IF_ERROR(Update(learning_rate));
    return score;
  }
  TANDEM_RETURN_IF_ERROR(halves_.CheckFirst());
  absl::StatusOr<Score> score = Compute(batch, learning_rate);
  if (!score.ok()) Abort(score.status());
  return score;
}

absl::StatusOr<Score> HybridStrategy::ComputeGradients(const Batch& batch) {
  TANDEM_RETURN_IF_ERROR(halves_.CheckFirst());
  absl::StatusOr<Score> score = Compute(batch, std::nullopt);
  if (!score.ok()) Abort(score.status());
  return score;
}

absl::Status HybridStrategy::Update(double learning_rate) {
  TANDEM_RETURN_IF_ERROR(halves_.BeginSecond());
  const absl::Status done = Finish(learning_rate);
  if (!done.ok()) Abort(done);
  return done;
}

absl::Status HybridStrategy::SkipUpdate() {
  TANDEM_RETURN_IF_ERROR(halves_.BeginSecond());
  const absl::Status done = Finish(std::nullopt);
  if (!done.ok()) Abort(done);
  return done;
}

void HybridStrategy::Abort(const absl::Status& reason) {
  groups_.Abort(reason);
  tied_->Abort(reason);
}

absl::StatusOr<Score> HybridStrategy::Sum(const Score& score) {
  if (groups_.world() == nullptr) return score;
  const at::Tensor sums = at::empty({kScoreNumbers}, at::kDouble);
  ToNumbers(score, sums.mutable_data_ptr<double>());
  TANDEM_RETURN_IF_ERROR(
      groups_.world()->AllReduceSum(sums, [] { return "the loss"; }));
  return ScoreOf(sums.const_data_ptr<double>());
}

}  // namespace tandem
