#include "parallel/pipeline/device_step.h"

#include <algorithm>

#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/device/memory_category.h"
#include "core/device/placement.h"
#include "core/flight/recorder.h"
#include "core/instrument/fault_point.h"
#include "core/memory/memory_trace.h"
#include "core/model/batch_inputs.h"
#include "core/model/layer_flow.h"
#include "parallel/pipeline/microbatches.h"

namespace tandem {
namespace {

// A new entry of the process's flight recorder.
FlightRecorder::Id NoteFlight(const Action& action) {
  FlightPurpose purpose;
  purpose.stage = action.stage;
  purpose.microbatch = action.microbatch;
  const FlightPurposeScope scope(purpose);
  FlightOperation operation;
  operation.kind = FlightKind::kAction;
  operation.name = ActionName(action.kind);
  return FlightRecorder::OfProcess().Schedule(/*group=*/nullptr, operation);
}

}  // namespace

// The engine's loop.
absl::Status PipelineExecutor::DeviceStep::RunActions() {
  moments_.reserve(local_.actions->size());
  TANDEM_RETURN_IF_ERROR(BeginParameters());
  for (const Action& action : *local_.actions) {
    if (!Computes(action.kind)) {
      TANDEM_RETURN_IF_ERROR(MoveParameters(action));
      continue;
    }
    if (action.microbatch >= static_cast<int>(step_.rows.size())) {
      TANDEM_RETURN_IF_ERROR(RunMissing(action));
      continue;
    }
    number_ = static_cast<int>(&action - local_.actions->data());
    moments_.emplace_back();
    moments_.back().action = action;
    moments_.back().came = DeviceMoment::Now(local_.device);
    flight_ = NoteFlight(action);
    // What throws here must end the others' waits, too.
    const absl::Status done = CatchTorch([&]() -> absl::Status {
      TANDEM_RETURN_IF_ERROR(Begin(action));
      TANDEM_ASSIGN_OR_RETURN(const StageMessage input, Wait(action));
      TANDEM_ASSIGN_OR_RETURN(const StageMessage output,
                              Compute(action, input));
      TANDEM_RETURN_IF_ERROR(Send(action, output));
      return End(action);
    });
    local_.progress.Ends();
    if (done.ok()) FlightRecorder::OfProcess().Complete(flight_);
    moments_.back().ended = DeviceMoment::Now(local_.device);
    TraceMemory(local_.device);
    if (!done.ok()) return Annotate(done, executor_.Describe(action));
    NoteHeld();
  }
  return absl::OkStatus();
}

absl::Status PipelineExecutor::DeviceStep::BeginParameters() const {
  if (!step_.trains) return absl::OkStatus();
  const auto device = static_cast<size_t>(local_.index);
  for (int i : executor_.schedule_.stages_of[device]) {
    LayerParameters* const parameters =
        executor_.stages_[static_cast<size_t>(i)]->layer_parameters();
    if (parameters == nullptr) continue;
    TANDEM_RETURN_IF_ERROR(CatchTorch([&] { return parameters->BeginStep(); }));
  }
  return absl::OkStatus();
}

// Does nothing for a stage whose parameters are always there. Replicas without
// microbatches take part.
absl::Status PipelineExecutor::DeviceStep::MoveParameters(
    const Action& action) const {
  LayerParameters* const parameters = Stage(action).layer_parameters();
  if (parameters == nullptr) return absl::OkStatus();
  const absl::Status done = CatchTorch([&] {
    return action.kind == ActionKind::kUnshard ? parameters->Unshard()
                                               : parameters->Free();
  });
  return done.ok() ? done : Annotate(done, executor_.Describe(action));
}

absl::Status PipelineExecutor::DeviceStep::Begin(const Action& action) {
  // A delay there is watched like a layer that takes as long.
  Watch(moments_.back().came.issued());
  const bool is_forward = IsForward(action.kind);
  const FaultPoints& points =
      executor_.fault_points_[static_cast<size_t>(action.stage)];
  TANDEM_RETURN_IF_ERROR(FaultPoint(
      is_forward ? points.forward : points.backward, action.microbatch));
  local_.progress.Ends();
  StageGradients* const gradients =
      is_forward ? nullptr : Gradients(action.stage);
  if (gradients == nullptr) return absl::OkStatus();
  return gradients->Before(action, IsLastOfStage(action));
}

// What the action needs: the stage's inputs, or the gradients of its outputs.
// The last stage's backward begins from its loss.
absl::StatusOr<StageMessage> PipelineExecutor::DeviceStep::Wait(
    const Action& action) {
  const PipelineChannels& channels = *executor_.channels_;
  if (IsForward(action.kind)) {
    ChannelReceiver* const inputs = channels.inputs(action.stage);
    return inputs == nullptr ? BatchInputs(action)
                             : inputs->Receive(action.microbatch);
  }
  ChannelReceiver* const gradients = channels.gradients(action.stage);
  if (!GivesInputGradient(action.kind) || gradients == nullptr) {
    return StageMessage();
  }
  // While the gradient is on its way.
  Watch(Clock::now());
  TANDEM_RETURN_IF_ERROR(Stage(action).Recompute(action.microbatch));
  local_.progress.Ends();
  return gradients->Receive(action.microbatch);
}

absl::StatusOr<StageMessage> PipelineExecutor::DeviceStep::Compute(
    const Action& action, const StageMessage& input) {
  ActionMoments& moments = moments_.back();
  const bool waits = action.kind != ActionKind::kBackwardWeight;
  moments.started = waits ? DeviceMoment::Now(local_.device) : moments.came;
  Watch(moments.started.issued());
  if (!IsForward(action.kind)) return Backward(action, input);
  TANDEM_ASSIGN_OR_RETURN(std::optional<LossTargets> targets, Targets(action));
  TANDEM_ASSIGN_OR_RETURN(StageOutput output,
                          Stage(action).Forward(Pass(action.microbatch), input,
                                                std::move(targets)));
  moments.computed = DeviceMoment::Now(local_.device);
  if (output.score.has_value()) {
    TANDEM_RETURN_IF_ERROR(
        NoteScore(static_cast<size_t>(action.microbatch), *output.score));
  }
  return std::move(output.message);
}

// To the next stage, or the one before; copies between devices of one process
// are made here.
absl::Status PipelineExecutor::DeviceStep::Send(const Action& action,
                                                const StageMessage& output) {
  if (action.kind == ActionKind::kBackwardWeight) return absl::OkStatus();
  local_.progress.Ends();
  const bool is_forward = IsForward(action.kind);
  const PipelineChannels& channels = *executor_.channels_;
  ChannelSender* const sender = is_forward ? channels.outputs(action.stage)
                                           : channels.further(action.stage);
  if (sender == nullptr) {
    if (is_forward && step_.keeps_outputs) {
      step_.outputs[static_cast<size_t>(action.microbatch)] = output[0];
    }
    return absl::OkStatus();
  }
  const MemoryCategoryScope category(is_forward ? MemoryCategory::kActivations
                                                : MemoryCategory::kGradients);
  return sender->Send(action.microbatch, output);
}

absl::Status PipelineExecutor::DeviceStep::End(const Action& action) {
  if (IsForward(action.kind)) return absl::OkStatus();
  StageGradients* const gradients = Gradients(action.stage);
  if (gradients == nullptr) return absl::OkStatus();
  if (action.kind == ActionKind::kBackwardInput) {
    gradients->AwaitWeights(Stage(action).WeightsLeft(action.microbatch));
  }
  return gradients->After(action, IsLastOfStage(action));
}

absl::Status PipelineExecutor::DeviceStep::Finish() {
  const auto device = static_cast<size_t>(local_.index);
  const PipelineChannels& channels = *executor_.channels_;
  for (int i : executor_.schedule_.stages_of[device]) {
    for (ChannelSender* sender : {channels.outputs(i), channels.further(i)}) {
      if (sender != nullptr) TANDEM_RETURN_IF_ERROR(sender->Flush());
    }
  }
  if (step_.trains) {
    for (int i : executor_.schedule_.stages_of[device]) {
      StageGradients* const gradients = Gradients(i);
      if (gradients != nullptr) TANDEM_RETURN_IF_ERROR(gradients->Finish());
    }
    const auto& after = step_.gradients->after_device;
    if (after) TANDEM_RETURN_IF_ERROR(after(local_.index));
  }
  return FinishScores();
}

// Where the last stage is: waits for the device, once a step, and is watched as
// its last action.
absl::Status PipelineExecutor::DeviceStep::FinishScores() {
  const Schedule& schedule = executor_.schedule_;
  const bool is_last =
      local_.index == DeviceOfStage(schedule, schedule.stages - 1);
  const bool reads = !step_.trains || !step_.gradients->defers_scores;
  if (!is_last || !reads || number_ < 0) return absl::OkStatus();
  std::vector<DeferredScore>& all = step_.losses.scores;
  local_.progress.Starts(number_, Clock::now());
  const absl::StatusOr<std::vector<Score>> scores =
      CatchTorchOr([&] { return ReadScores(all); });
  local_.progress.Ends();
  if (!scores.ok()) return Annotate(scores.status(), "reading the score");
  for (size_t i = 0; i < scores->size(); ++i) all[i] = {(*scores)[i]};
  return absl::OkStatus();
}

absl::Status PipelineExecutor::DeviceStep::RunMissing(
    const Action& action) const {
  if (!step_.trains || !step_.gradients->on_missing) return absl::OkStatus();
  if (action.microbatch >= step_.gradients->microbatches) {
    return absl::OkStatus();
  }
  const absl::Status done = step_.gradients->on_missing(action);
  return done.ok() ? done : Annotate(done, executor_.Describe(action));
}

// The first stage's inputs.
absl::StatusOr<StageMessage> PipelineExecutor::DeviceStep::BatchInputs(
    const Action& action) const {
  const Batch& batch =
      (*step_.microbatches)[static_cast<size_t>(action.microbatch)];
  if (!batch.inputs.defined()) {
    return absl::InvalidArgumentError(
        "the first stage's rank needs the batch's inputs");
  }
  const PipelineStage& first = Stage(action);
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

// What the last stage's loss is computed from; nothing where there is no loss
// to compute. A pass that trains nothing computes it of batches with targets.
absl::StatusOr<std::optional<LossTargets>>
PipelineExecutor::DeviceStep::Targets(const Action& action) const {
  const LossFunction& loss = Stage(action).loss();
  const Batch& batch =
      (*step_.microbatches)[static_cast<size_t>(action.microbatch)];
  if (!loss || (!step_.trains && !HasTargets(batch))) {
    return std::optional<LossTargets>();
  }
  TANDEM_ASSIGN_OR_RETURN(LossTargets targets,
                          BatchTargets(batch, loss.names()));
  return std::optional<LossTargets>(std::move(targets));
}

StagePass PipelineExecutor::DeviceStep::Pass(int microbatch) const {
  const PipelineOptions& options = executor_.options_;
  const auto index = static_cast<size_t>(microbatch);
  const int count = static_cast<int>(step_.rows.size());
  StagePass pass;
  if (step_.samples.samples.has_value()) {
    pass.samples = step_.samples.samples;
    pass.samples->first += step_.firsts[index];
  }
  if (!step_.trains) {
    pass.microbatch = {microbatch, count};
    pass.keeps = StageKeeps::kNothing;
    return pass;
  }
  // Statistics are of all microbatches, whoever has them.
  pass.microbatch = {microbatch, std::max(count, step_.gradients->microbatches),
                     false, options.defers_statistics};
  pass.keeps = KeepsActivations(options.checkpointing, microbatch, count)
                   ? StageKeeps::kActivations
                   : StageKeeps::kInputs;
  pass.all_keep_activations =
      options.checkpointing == ActivationCheckpointing::kNever;
  const double of =
      step_.samples.of > 0 ? step_.samples.of : static_cast<double>(step_.size);
  pass.weight = static_cast<double>(step_.rows[index]) / of;
  const std::vector<double>& parts = step_.samples.loss_parts;
  pass.loss_weight = parts.empty() ? pass.weight : parts[index];
  const std::vector<at::Tensor>& scales = step_.gradients->loss_scales;
  if (!scales.empty()) {
    pass.loss_scale = scales[static_cast<size_t>(local_.index) % scales.size()];
  }
  return pass;
}

// In training a loss that weighs by samples is compared with that of the first
// microbatch whose loss was computed.
absl::Status PipelineExecutor::DeviceStep::NoteScore(
    size_t index, const DeferredScore& score) {
  std::vector<DeferredScore>& scores = step_.losses.scores;
  scores[index] = score;
  if (!step_.trains) return absl::OkStatus();
  if (step_.samples.loss_parts.empty()) {
    if (!step_.first_score.has_value()) step_.first_score = index;
    const size_t first = *step_.first_score;
    TANDEM_RETURN_IF_ERROR(CheckSameDensity(score.known, step_.rows[index],
                                            scores[first].known,
                                            step_.rows[first]));
  }
  const bool last = index + 1 == step_.rows.size();
  return last ? FaultPoint("after_forward") : absl::OkStatus();
}

// The gradients of inputs, of weights, or both; with the stage's last action
// all gradients of weights that wait for more microbatches.
absl::StatusOr<StageMessage> PipelineExecutor::DeviceStep::Backward(
    const Action& action, const StageMessage& gradients) {
  PipelineStage& stage = Stage(action);
  StageMessage further;
  if (GivesInputGradient(action.kind)) {
    TANDEM_ASSIGN_OR_RETURN(further,
                            stage.BackwardInput(action.microbatch, gradients));
  }
  if (action.kind != ActionKind::kBackwardInput) {
    const bool last = IsLastOfStage(action);
    StageGradients* const told = Gradients(action.stage);
    if (last && told != nullptr) {
      TANDEM_RETURN_IF_ERROR(told->BeforeWeights(action));
    }
    TANDEM_RETURN_IF_ERROR(stage.BackwardWeight(action.microbatch));
    if (last) TANDEM_RETURN_IF_ERROR(stage.FlushWeights());
  }
  moments_.back().computed = DeviceMoment::Now(local_.device);
  return further;
}

PipelineStage& PipelineExecutor::DeviceStep::Stage(const Action& action) const {
  return *executor_.stages_[static_cast<size_t>(action.stage)];
}

StageGradients* PipelineExecutor::DeviceStep::Gradients(int stage) const {
  const std::vector<StageGradients*>& all = step_.gradients->of_stages;
  return all.empty() ? nullptr : all[static_cast<size_t>(stage)];
}

bool PipelineExecutor::DeviceStep::IsLastOfStage(const Action& action) const {
  return action == step_.last_gradients[static_cast<size_t>(action.stage)];
}

void PipelineExecutor::DeviceStep::Watch(Clock::time_point since) {
  local_.progress.Starts(number_, since);
  FlightRecorder::OfProcess().Start(flight_);
}

void PipelineExecutor::DeviceStep::NoteHeld() {
  const auto device = static_cast<size_t>(local_.index);
  int held = 0;
  for (int i : executor_.schedule_.stages_of[device]) {
    held += executor_.stages_[static_cast<size_t>(i)]->microbatches_held();
  }
  int& peak = executor_.peaks_[device];
  peak = std::max(peak, held);
}

const char* ActionName(ActionKind kind) {
  switch (kind) {
    case ActionKind::kForward:
      return "forward";
    case ActionKind::kBackward:
      return "backward";
    case ActionKind::kBackwardInput:
      return "backward of the input";
    case ActionKind::kBackwardWeight:
      return "backward of the weights";
    case ActionKind::kUnshard:
      return "gathering parameters";
    case ActionKind::kReshard:
      return "freeing parameters";
  }
  return "";
}

}  // namespace tandem
