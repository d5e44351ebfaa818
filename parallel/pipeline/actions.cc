// What a device's thread does for one action.

#include <algorithm>
#include <vector>

#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/device/memory_category.h"
#include "core/device/placement.h"
#include "core/instrument/fault_point.h"
#include "core/model/batch_inputs.h"
#include "core/model/layer_flow.h"
#include "parallel/pipeline/device_step.h"
#include "parallel/pipeline/loss_weights.h"

namespace tandem {

StagePass PipelineExecutor::DeviceStep::PassOf(int microbatch) const {
  const PipelineOptions& options = executor_.options_;
  const auto index = static_cast<size_t>(microbatch);
  const int count = static_cast<int>(step_.rows.size());
  StagePass pass;
  // Statistics are of all microbatches, whoever has them.
  const int of_all =
      step_.trains ? std::max(count, step_.gradients->microbatches) : count;
  pass.microbatch = {microbatch, of_all, false,
                     step_.trains && options.defers_statistics};
  if (step_.samples.samples.has_value()) {
    pass.samples = step_.samples.samples;
    pass.samples->first += step_.firsts[index];
  }
  pass.keeps_activations =
      KeepsActivations(options.checkpointing, microbatch, count);
  pass.all_keep_activations =
      options.checkpointing == ActivationCheckpointing::kNever;
  if (step_.trains) {
    const double of = step_.samples.of > 0 ? step_.samples.of
                                           : static_cast<double>(step_.size);
    pass.weight = static_cast<double>(step_.rows[index]) / of;
    const std::vector<at::Tensor>& scales = step_.gradients->loss_scales;
    if (!scales.empty()) {
      pass.loss_scale =
          scales[static_cast<size_t>(local_.index) % scales.size()];
    }
  }
  return pass;
}

absl::StatusOr<StageMessage> PipelineExecutor::DeviceStep::InputsOf(
    const Action& action) const {
  if (action.stage > 0) {
    return executor_.channels_->inputs(action.stage)
        ->Receive(action.microbatch);
  }
  const Batch& batch = BatchOf(action);
  if (!batch.inputs.defined()) {
    return absl::InvalidArgumentError(
        "the first stage's rank needs the batch's inputs");
  }
  const PipelineStage& first = StageOf(action);
  TANDEM_ASSIGN_OR_RETURN(const Skips further,
                          NamedInputs(batch, first.incoming()));
  const auto place = [&](const at::Tensor& given) {
    // Nobody asks for the gradient of a batch.
    const at::Tensor placed = PlaceOn(first.device(), given.detach());
    return executor_.options_.settles_inputs ? Settled(placed) : placed;
  };
  return CatchTorchOr([&] {
    StageMessage message = {place(batch.inputs)};
    for (const auto& each : further) message.push_back(place(each.second));
    return message;
  });
}

// Against the first microbatch whose loss was computed.
absl::Status PipelineExecutor::DeviceStep::CheckDensity(size_t index) {
  if (!step_.first_score.has_value()) step_.first_score = index;
  const size_t first = *step_.first_score;
  return CheckSameDensity(step_.scores[index].known, step_.rows[index],
                          step_.scores[first].known, step_.rows[first]);
}

absl::Status PipelineExecutor::DeviceStep::RunForward(const Action& action,
                                                      ActionMoments& time) {
  TANDEM_ASSIGN_OR_RETURN(const StageMessage inputs, InputsOf(action));
  time.started = Now();
  Starts(action, time.started.issued());
  const bool learns = step_.trains && StageOf(action).has_loss();
  return learns ? RunLoss(action, inputs, time)
                : RunLayers(action, inputs, time);
}

absl::Status PipelineExecutor::DeviceStep::RunLoss(const Action& action,
                                                   const StageMessage& inputs,
                                                   ActionMoments& time) {
  const auto index = static_cast<size_t>(action.microbatch);
  PipelineStage& stage = StageOf(action);
  const StagePass pass = PassOf(action.microbatch);
  const std::vector<double>& parts = step_.samples.loss_parts;
  TANDEM_ASSIGN_OR_RETURN(const LossTargets targets,
                          TargetsOf(BatchOf(action), stage.loss().names()));
  TANDEM_ASSIGN_OR_RETURN(
      step_.scores[index],
      stage.ForwardLoss(pass, inputs, targets,
                        parts.empty() ? pass.weight : parts[index]));
  time.computed = Now();
  if (parts.empty()) TANDEM_RETURN_IF_ERROR(CheckDensity(index));
  const bool last = index + 1 == step_.rows.size();
  return last ? FaultPoint("after_forward") : absl::OkStatus();
}

// All but the last stage's in a training step.
absl::Status PipelineExecutor::DeviceStep::RunLayers(const Action& action,
                                                     const StageMessage& inputs,
                                                     ActionMoments& time) {
  const auto index = static_cast<size_t>(action.microbatch);
  PipelineStage& stage = StageOf(action);
  const StagePass pass = PassOf(action.microbatch);
  const Batch& batch = BatchOf(action);
  TANDEM_ASSIGN_OR_RETURN(
      const StageMessage outputs,
      step_.trains ? stage.Forward(pass, inputs) : stage.Infer(pass, inputs));
  if (stage.has_loss() && HasTargets(batch)) {
    TANDEM_ASSIGN_OR_RETURN(const LossTargets targets,
                            TargetsOf(batch, stage.loss().names()));
    TANDEM_ASSIGN_OR_RETURN(step_.scores[index], stage.Judge(outputs, targets));
  }
  time.computed = Now();
  local_.progress.Ends();
  if (stage.has_loss()) {
    if (step_.keeps_outputs) step_.outputs[index] = outputs[0];
    return absl::OkStatus();
  }
  // Copies between devices of one process are made here, for the next stage.
  const MemoryCategoryScope category(MemoryCategory::kActivations);
  return executor_.channels_->outputs(action.stage)
      ->Send(action.microbatch, outputs);
}

absl::Status PipelineExecutor::DeviceStep::RunBackward(const Action& action,
                                                       ActionMoments& time) {
  const PipelineChannels& channels = *executor_.channels_;
  PipelineStage& stage = StageOf(action);
  StageMessage gradients;
  if (!stage.has_loss()) {
    // While the gradient is on its way.
    Starts(action, Clock::now());
    TANDEM_RETURN_IF_ERROR(stage.Recompute(action.microbatch));
    local_.progress.Ends();
    TANDEM_ASSIGN_OR_RETURN(
        gradients,
        channels.gradients(action.stage)->Receive(action.microbatch));
  }
  time.started = Now();
  Starts(action, time.started.issued());
  TANDEM_ASSIGN_OR_RETURN(const StageMessage further,
                          stage.BackwardInput(action.microbatch, gradients));
  if (action.kind == ActionKind::kBackward) {
    TANDEM_RETURN_IF_ERROR(ComputeWeights(action));
  }
  time.computed = Now();
  local_.progress.Ends();
  if (action.stage == 0) return absl::OkStatus();
  const MemoryCategoryScope category(MemoryCategory::kGradients);
  return channels.further(action.stage)->Send(action.microbatch, further);
}

// What layers have left of it, and with the last action all that waits for more
// microbatches.
absl::Status PipelineExecutor::DeviceStep::ComputeWeights(
    const Action& action) {
  PipelineStage& stage = StageOf(action);
  const bool last = IsLastOfStage(action);
  StageGradients* const gradients = GradientsOf(action.stage);
  if (last && gradients != nullptr) {
    TANDEM_RETURN_IF_ERROR(gradients->BeforeWeights(action));
  }
  TANDEM_RETURN_IF_ERROR(stage.BackwardWeight(action.microbatch));
  return last ? stage.FlushWeights() : absl::OkStatus();
}

absl::Status PipelineExecutor::DeviceStep::RunBackwardWeight(
    const Action& action, ActionMoments& time) {
  time.started = time.came;
  Starts(action, time.started.issued());
  const absl::Status done = ComputeWeights(action);
  time.computed = Now();
  return done;
}

absl::Status PipelineExecutor::DeviceStep::Compute(const Action& action,
                                                   ActionMoments& time) {
  const FaultPoints& points =
      executor_.fault_points_[static_cast<size_t>(action.stage)];
  const bool is_forward = action.kind == ActionKind::kForward;
  // A delay there is watched like a layer that takes as long.
  Starts(action, time.came.issued());
  TANDEM_RETURN_IF_ERROR(FaultPoint(
      is_forward ? points.forward : points.backward, action.microbatch));
  local_.progress.Ends();
  return is_forward ? RunForward(action, time) : RunGradients(action, time);
}

absl::Status PipelineExecutor::DeviceStep::RunGradients(const Action& action,
                                                        ActionMoments& time) {
  const auto run = [&] {
    return action.kind == ActionKind::kBackwardWeight
               ? RunBackwardWeight(action, time)
               : RunBackward(action, time);
  };
  StageGradients* const gradients = GradientsOf(action.stage);
  if (gradients == nullptr) return run();
  const bool last = IsLastOfStage(action);
  TANDEM_RETURN_IF_ERROR(gradients->Before(action, last));
  TANDEM_RETURN_IF_ERROR(run());
  if (action.kind == ActionKind::kBackwardInput) {
    gradients->AwaitWeights(StageOf(action).WeightsLeft(action.microbatch));
  }
  return gradients->After(action, last);
}

absl::Status PipelineExecutor::DeviceStep::RunAction(const Action& action,
                                                     ActionMoments& time) {
  time.action = action;
  time.came = Now();
  flight_ = NoteFlight(action);
  // What throws here must end the others' waits, too.
  const absl::Status done = CatchTorch([&] { return Compute(action, time); });
  local_.progress.Ends();
  if (done.ok()) FlightRecorder::OfProcess().Complete(flight_);
  time.ended = Now();
  return done.ok() ? done : Annotate(done, executor_.Describe(action));
}

}  // namespace tandem
