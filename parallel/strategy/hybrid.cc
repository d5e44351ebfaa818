#include "parallel/strategy/hybrid.h"

#include <ATen/ops/empty.h>

#include <optional>
#include <utility>

#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "parallel/strategy/score_numbers.h"

namespace tandem {

Hybrid::Hybrid(const HybridOptions& options)
    : options_(options), times_(options_.schedule) {}

std::string Hybrid::name() const {
  const bool one_pipeline =
      groups_.replicas() == 1 && options_.schedule.devices() > 1;
  return one_pipeline ? "pipeline" : "hybrid";
}

std::vector<TrainedStage*> Hybrid::StagesOf(int device) const {
  std::vector<TrainedStage*> stages;
  for (int i : options_.schedule.stages_of[static_cast<size_t>(device)]) {
    TrainedStage* const stage = stages_[static_cast<size_t>(i)].get();
    if (stage != nullptr) stages.push_back(stage);
  }
  return stages;
}

std::vector<TrainedStage*> Hybrid::AllStages() const {
  std::vector<TrainedStage*> stages;
  for (const auto& stage : stages_) {
    if (stage != nullptr) stages.push_back(stage.get());
  }
  return stages;
}

FlatBufferList Hybrid::AllBuffers() const {
  std::vector<FlatBuffer*> all;
  for (const TrainedStage* stage : AllStages()) {
    for (FlatBuffer* buffer : stage->all()) all.push_back(buffer);
  }
  return FlatBufferList(all);
}

// A stage's gradients are averaged, and where nothing else is asked for it is
// updated, on its device's thread.
StepHooks Hybrid::Hooks(std::optional<double> learning_rate) {
  const auto stage_of = [this](const Action& action) {
    return stages_[static_cast<size_t>(action.stage)].get();
  };
  StepHooks hooks;
  hooks.before = [stage_of](const Action& action, bool last) {
    return stage_of(action)->Before(action, last);
  };
  hooks.after = [this, stage_of](const Action& action, bool last) {
    if (options_.reproducible && action.kind == ActionKind::kBackwardInput) {
      const auto& stage =
          executor_->stages()[static_cast<size_t>(action.stage)];
      stage_of(action)->AwaitWeights(stage->WeightsLeft(action.microbatch));
    }
    return stage_of(action)->After(action, last);
  };
  hooks.weights = [stage_of](const Action& action) {
    return stage_of(action)->BeforeWeights(action);
  };
  hooks.finish = [this, learning_rate](int device) {
    for (TrainedStage* stage : StagesOf(device)) {
      TANDEM_RETURN_IF_ERROR(stage->Finish());
    }
    return learning_rate.has_value()
               ? UpdateDevice(device, std::nullopt, learning_rate)
               : absl::OkStatus();
  };
  return hooks;
}

absl::StatusOr<Score> Hybrid::Compute(const Batch& batch,
                                      std::optional<double> learning_rate) {
  TANDEM_RETURN_IF_ERROR(LearnSizes(batch.size));
  TANDEM_ASSIGN_OR_RETURN(const std::vector<Batch> microbatches,
                          Microbatches(batch));
  SetTraining(executor_->stages(), true);
  for (TrainedStage* stage : AllStages()) {
    TANDEM_RETURN_IF_ERROR(stage->Prepare());
  }
  for (const auto& stage : executor_->stages()) {
    if (stage == nullptr || stage->records() == nullptr) continue;
    stage->records()->Begin(static_cast<int>(microbatches.size()));
  }
  TANDEM_ASSIGN_OR_RETURN(const StepSamples samples,
                          SamplesOfStep(microbatches));
  const absl::StatusOr<Score> score =
      executor_->TrainStep(microbatches, samples, Hooks(learning_rate));
  if (!score.ok()) return Annotate(score.status(), "training step");
  const auto usual = static_cast<size_t>(options_.schedule.microbatches);
  if (microbatches.size() == usual) Measure(batch);
  TANDEM_RETURN_IF_ERROR(SumAddedLosses());
  if (learning_rate.has_value()) {
    ++step_;
  } else {
    TANDEM_RETURN_IF_ERROR(tied_->Sum());
    halves_.EndFirst();
  }
  return options_.reproducible ? SumInOrder() : Sum(*score);
}

absl::StatusOr<Score> Hybrid::TrainStep(const Batch& batch,
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

absl::StatusOr<Score> Hybrid::ComputeGradients(const Batch& batch) {
  TANDEM_RETURN_IF_ERROR(halves_.CheckFirst());
  absl::StatusOr<Score> score = Compute(batch, std::nullopt);
  if (!score.ok()) Abort(score.status());
  return score;
}

absl::Status Hybrid::Update(double learning_rate) {
  TANDEM_RETURN_IF_ERROR(halves_.BeginSecond());
  const absl::Status done = Finish(learning_rate);
  if (!done.ok()) Abort(done);
  return done;
}

absl::Status Hybrid::SkipUpdate() {
  TANDEM_RETURN_IF_ERROR(halves_.BeginSecond());
  const absl::Status done = Finish(std::nullopt);
  if (!done.ok()) Abort(done);
  return done;
}

void Hybrid::Abort(const absl::Status& reason) {
  groups_.Abort(reason);
  tied_->Abort(reason);
}

absl::StatusOr<Score> Hybrid::Sum(const Score& score) {
  if (groups_.world() == nullptr) return score;
  const at::Tensor sums = at::empty({kScoreNumbers}, at::kDouble);
  ToNumbers(score, sums.mutable_data_ptr<double>());
  TANDEM_RETURN_IF_ERROR(
      groups_.world()->AllReduceSum(sums, [] { return "the loss"; }));
  return ScoreOf(sums.const_data_ptr<double>());
}

}  // namespace tandem
