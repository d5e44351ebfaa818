// What a device's thread does for one action.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/instrument/fault_point.h"
#include "core/model/batch_inputs.h"
#include "parallel/pipeline/executor.h"
#include "parallel/pipeline/loss_weights.h"
#include "parallel/pipeline/step.h"

namespace tandem {

using Clock = ActionTime::Clock;

namespace {

// To a cache line, which is the greatest vector.
bool IsAligned(const at::Tensor& tensor) {
  constexpr uintptr_t kLine = 64;
  return reinterpret_cast<uintptr_t>(tensor.data_ptr()) % kLine == 0;
}

}  // namespace

std::string PipelineExecutor::Describe(const Action& action) const {
  const char* what = action.kind == ActionKind::kForward    ? "forward"
                     : action.kind == ActionKind::kBackward ? "backward"
                     : action.kind == ActionKind::kBackwardInput
                         ? "backward of the input"
                         : "backward of the weights";
  return absl::StrCat(what, " of microbatch ", action.microbatch, " in ",
                      stages_[static_cast<size_t>(action.stage)]->name());
}

StagePass PipelineExecutor::PassOf(int microbatch, const Step& step) const {
  const auto index = static_cast<size_t>(microbatch);
  const int count = static_cast<int>(step.rows.size());
  StagePass pass;
  pass.microbatch = {microbatch, count, false,
                     step.trains && options_.defers_statistics};
  if (step.samples.samples.has_value()) {
    pass.samples = step.samples.samples;
    pass.samples->first += step.firsts[index];
  }
  pass.keeps_activations =
      KeepsActivations(options_.checkpointing, microbatch, count);
  pass.all_keep_activations =
      options_.checkpointing == ActivationCheckpointing::kNever;
  if (step.trains) {
    const double of =
        step.samples.of > 0 ? step.samples.of : static_cast<double>(step.size);
    pass.weight = static_cast<double>(step.rows[index]) / of;
  }
  return pass;
}

absl::StatusOr<StageMessage> PipelineExecutor::InputsOf(
    const Action& action, const Step& step) const {
  if (action.stage > 0) {
    return channels_->inputs(action.stage)->Receive(action.microbatch);
  }
  const Batch& batch =
      (*step.microbatches)[static_cast<size_t>(action.microbatch)];
  if (!batch.inputs.defined()) {
    return absl::InvalidArgumentError(
        "the first stage's rank needs the batch's inputs");
  }
  const PipelineStage& first = *stages_.front();
  TANDEM_ASSIGN_OR_RETURN(const Skips further,
                          NamedInputs(batch, first.incoming()));
  const auto place = [&](const at::Tensor& given) {
    // Nobody asks for the gradient of a batch.
    const at::Tensor placed = given.detach().to(first.device());
    const bool moves = options_.aligns_inputs && !IsAligned(placed);
    return moves ? placed.clone() : placed;
  };
  return CatchTorchOr([&] {
    StageMessage message = {place(batch.inputs)};
    for (const auto& each : further) message.push_back(place(each.second));
    return message;
  });
}

// Against the first microbatch whose loss was computed.
absl::Status PipelineExecutor::CheckDensity(size_t index, Step& step) {
  if (!step.first_score.has_value()) step.first_score = index;
  const size_t first = *step.first_score;
  return CheckSameDensity(step.deferred_scores[index].known, step.rows[index],
                          step.deferred_scores[first].known, step.rows[first]);
}

absl::Status PipelineExecutor::RunForward(const Action& action, Step& step,
                                          Local& local, ActionTime& time) {
  const auto index = static_cast<size_t>(action.microbatch);
  PipelineStage& stage = *stages_[static_cast<size_t>(action.stage)];
  TANDEM_ASSIGN_OR_RETURN(const StageMessage inputs, InputsOf(action, step));
  time.started = Clock::now();
  local.progress.Starts(NumberOf(action, *local.actions), time.started);
  const StagePass pass = PassOf(action.microbatch, step);
  const Batch& batch = (*step.microbatches)[index];
  if (step.trains && stage.has_loss()) {
    const std::vector<double>& parts = step.samples.loss_parts;
    TANDEM_ASSIGN_OR_RETURN(const LossTargets targets,
                            TargetsOf(batch, stage.loss().names()));
    TANDEM_ASSIGN_OR_RETURN(
        step.deferred_scores[index],
        stage.ForwardLoss(pass, inputs, targets,
                          parts.empty() ? pass.weight : parts[index]));
    time.computed = Clock::now();
    if (parts.empty()) TANDEM_RETURN_IF_ERROR(CheckDensity(index, step));
    const bool last = index + 1 == step.rows.size();
    return last ? FaultPoint("after_forward") : absl::OkStatus();
  }
  TANDEM_ASSIGN_OR_RETURN(
      const StageMessage outputs,
      step.trains ? stage.Forward(pass, inputs) : stage.Infer(pass, inputs));
  if (stage.has_loss() && HasTargets(batch)) {
    TANDEM_ASSIGN_OR_RETURN(const LossTargets targets,
                            TargetsOf(batch, stage.loss().names()));
    TANDEM_ASSIGN_OR_RETURN(step.deferred_scores[index],
                            stage.Judge(outputs, targets));
  }
  time.computed = Clock::now();
  local.progress.Ends();
  if (stage.has_loss()) {
    if (step.keeps_outputs) step.outputs[index] = outputs[0];
    return absl::OkStatus();
  }
  return channels_->outputs(action.stage)->Send(action.microbatch, outputs);
}

absl::Status PipelineExecutor::RunBackward(const Action& action, Step& step,
                                           Local& local, ActionTime& time) {
  PipelineStage& stage = *stages_[static_cast<size_t>(action.stage)];
  const int number = NumberOf(action, *local.actions);
  StageMessage gradients;
  if (!stage.has_loss()) {
    // While the gradient is on its way.
    local.progress.Starts(number, Clock::now());
    TANDEM_RETURN_IF_ERROR(stage.Recompute(action.microbatch));
    local.progress.Ends();
    TANDEM_ASSIGN_OR_RETURN(
        gradients,
        channels_->gradients(action.stage)->Receive(action.microbatch));
  }
  time.started = Clock::now();
  local.progress.Starts(number, time.started);
  TANDEM_ASSIGN_OR_RETURN(const StageMessage further,
                          stage.BackwardInput(action.microbatch, gradients));
  if (action.kind == ActionKind::kBackward) {
    TANDEM_RETURN_IF_ERROR(ComputeWeights(action, step));
  }
  time.computed = Clock::now();
  local.progress.Ends();
  if (action.stage == 0) return absl::OkStatus();
  return channels_->further(action.stage)->Send(action.microbatch, further);
}

// What layers have left of it, and with the last action all that waits for more
// microbatches.
absl::Status PipelineExecutor::ComputeWeights(const Action& action,
                                              const Step& step) {
  const auto index = static_cast<size_t>(action.stage);
  PipelineStage& stage = *stages_[index];
  const bool last = action == step.last_gradients[index];
  StageGradients* const gradients = GradientsOf(action.stage, step);
  if (last && gradients != nullptr) {
    TANDEM_RETURN_IF_ERROR(gradients->BeforeWeights(action));
  }
  TANDEM_RETURN_IF_ERROR(stage.BackwardWeight(action.microbatch));
  return last ? stage.FlushWeights() : absl::OkStatus();
}

absl::Status PipelineExecutor::RunBackwardWeight(const Action& action,
                                                 Step& step, Local& local,
                                                 ActionTime& time) {
  time.started = time.came;
  local.progress.Starts(NumberOf(action, *local.actions), time.started);
  const absl::Status done = ComputeWeights(action, step);
  time.computed = Clock::now();
  return done;
}

absl::Status PipelineExecutor::Compute(const Action& action, Step& step,
                                       Local& local, ActionTime& time) {
  const FaultPoints& points = fault_points_[static_cast<size_t>(action.stage)];
  const bool is_forward = action.kind == ActionKind::kForward;
  // A delay there is watched like a layer that takes as long.
  local.progress.Starts(NumberOf(action, *local.actions), time.came);
  TANDEM_RETURN_IF_ERROR(FaultPoint(
      is_forward ? points.forward : points.backward, action.microbatch));
  local.progress.Ends();
  if (is_forward) return RunForward(action, step, local, time);
  return RunGradients(action, step, local, time);
}

absl::Status PipelineExecutor::RunGradients(const Action& action, Step& step,
                                            Local& local, ActionTime& time) {
  const auto run = [&] {
    return action.kind == ActionKind::kBackwardWeight
               ? RunBackwardWeight(action, step, local, time)
               : RunBackward(action, step, local, time);
  };
  StageGradients* const gradients = GradientsOf(action.stage, step);
  if (gradients == nullptr) return run();
  const auto index = static_cast<size_t>(action.stage);
  const bool last = action == step.last_gradients[index];
  TANDEM_RETURN_IF_ERROR(gradients->Before(action, last));
  TANDEM_RETURN_IF_ERROR(run());
  if (action.kind == ActionKind::kBackwardInput) {
    gradients->AwaitWeights(stages_[index]->WeightsLeft(action.microbatch));
  }
  return gradients->After(action, last);
}

absl::Status PipelineExecutor::RunAction(const Action& action, Step& step,
                                         Local& local, ActionTime& time) {
  time.action = action;
  time.came = Clock::now();
  const absl::Status done = Compute(action, step, local, time);
  local.progress.Ends();
  time.ended = Clock::now();
  return done.ok() ? done : Annotate(done, Describe(action));
}

}  // namespace tandem
