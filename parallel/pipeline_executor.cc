#include "parallel/pipeline_executor.h"

#include <algorithm>
#include <future>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "core/status_macros.h"
#include "core/torch_status.h"
#include "parallel/schedule_validator.h"

namespace tandem {
namespace {

absl::Status CheckMicrobatches(const Schedule& schedule,
                               const std::vector<Batch>& microbatches) {
  const bool fits =
      microbatches.size() == static_cast<size_t>(schedule.microbatches) &&
      std::all_of(microbatches.begin(), microbatches.end(),
                  [](const Batch& each) { return each.size > 0; });
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "a step of schedule ", schedule.name, " takes ", schedule.microbatches,
      " microbatches, none empty; ", microbatches.size(), " were given"));
}

}  // namespace

PipelineExecutor::PipelineExecutor(Schedule schedule,
                                   std::vector<PipelineStage> stages,
                                   LossFunction loss)
    : schedule_(std::move(schedule)),
      stages_(std::move(stages)),
      loss_(std::move(loss)) {}

PipelineExecutor::~PipelineExecutor() = default;

absl::StatusOr<std::unique_ptr<PipelineExecutor>> PipelineExecutor::Create(
    Schedule schedule, std::vector<PipelineStage> stages, LossFunction loss,
    const PipelineOptions& options) {
  if (stages.size() != static_cast<size_t>(schedule.stages)) {
    return absl::InvalidArgumentError(
        absl::StrCat("schedule ", schedule.name, " has ", schedule.stages,
                     " stages, but ", stages.size(), " were given"));
  }
  TANDEM_ASSIGN_OR_RETURN(const int capacity, LeastChannelCapacity(schedule));
  auto executor = absl::WrapUnique(new PipelineExecutor(
      std::move(schedule), std::move(stages), std::move(loss)));
  TANDEM_RETURN_IF_ERROR(executor->Connect(std::max(capacity, 1), options));
  return executor;
}

absl::Status PipelineExecutor::Connect(int capacity,
                                       const PipelineOptions& options) {
  for (int device = 0; device < schedule_.devices(); ++device) {
    const c10::Device first =
        stages_[schedule_.stages_of[device].front()].device();
    for (int stage : schedule_.stages_of[device]) {
      if (stages_[stage].device() == first) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("stage ", stage, " is on ",
                       stages_[stage].device().str(), ", not on ", first.str(),
                       " as the others of its device in the schedule"));
    }
    places_.push_back(std::make_unique<Place>(first));
  }
  for (int stage = 0; stage + 1 < schedule_.stages; ++stage) {
    const CopyChannel channel(stages_[stage].device(),
                              stages_[stage + 1].device());
    // Neighbours on one device hand over without waiting for each other.
    const bool near =
        DeviceOfStage(schedule_, stage) == DeviceOfStage(schedule_, stage + 1);
    const int room = near ? schedule_.microbatches : capacity;
    forward_.push_back(std::make_unique<LocalStageLane>(channel.there(), room,
                                                        options.timeout));
    backward_.push_back(std::make_unique<LocalStageLane>(channel.back(), room,
                                                         options.timeout));
  }
  return absl::OkStatus();
}

absl::Status PipelineExecutor::RunForward(const Action& action, Step& step) {
  const Batch& batch = (*step.microbatches)[action.microbatch];
  PipelineStage& stage = stages_[action.stage];
  at::Tensor input;
  if (action.stage == 0) {
    TANDEM_ASSIGN_OR_RETURN(
        input, CatchTorchOr([&] { return batch.inputs.to(stage.device()); }));
  } else {
    TANDEM_ASSIGN_OR_RETURN(
        input, forward_[action.stage - 1]->Receive(action.microbatch));
  }
  if (action.stage + 1 == schedule_.stages) {
    const double weight = static_cast<double>(batch.size) / step.predictions;
    TANDEM_ASSIGN_OR_RETURN(step.scores[action.microbatch],
                            stage.ForwardLoss(action.microbatch, input,
                                              batch.targets, weight, loss_));
    return absl::OkStatus();
  }
  TANDEM_ASSIGN_OR_RETURN(const at::Tensor output,
                          stage.Forward(action.microbatch, input));
  return forward_[action.stage]->Send(action.microbatch, output);
}

absl::Status PipelineExecutor::RunBackward(const Action& action) {
  at::Tensor gradient;
  if (action.stage + 1 < schedule_.stages) {
    TANDEM_ASSIGN_OR_RETURN(
        gradient, backward_[action.stage]->Receive(action.microbatch));
  }
  PipelineStage& stage = stages_[action.stage];
  TANDEM_ASSIGN_OR_RETURN(
      const at::Tensor further,
      action.kind == ActionKind::kBackward
          ? stage.Backward(action.microbatch, gradient)
          : stage.BackwardInput(action.microbatch, gradient));
  if (action.stage == 0) return absl::OkStatus();
  return backward_[action.stage - 1]->Send(action.microbatch, further);
}

absl::Status PipelineExecutor::RunAction(const Action& action, Step& step) {
  const bool is_forward = action.kind == ActionKind::kForward;
  absl::Status done;
  if (is_forward) {
    done = RunForward(action, step);
  } else if (action.kind == ActionKind::kBackwardWeight) {
    done = stages_[action.stage].BackwardWeight(action.microbatch);
  } else {
    done = RunBackward(action);
  }
  if (done.ok()) return done;
  return Annotate(done, absl::StrCat(is_forward ? "forward" : "backward",
                                     " of microbatch ", action.microbatch,
                                     " in ", stages_[action.stage].name()));
}

absl::Status PipelineExecutor::RunDevice(int device, Step& step) {
  for (const Action& action : schedule_.actions[device]) {
    const absl::Status done = RunAction(action, step);
    if (done.ok()) continue;
    Fail(step, done);
    return done;
  }
  return absl::OkStatus();
}

void PipelineExecutor::Fail(Step& step, const absl::Status& reason) {
  {
    absl::MutexLock lock(&step.mutex);
    // Others fail because this one did.
    if (step.failure.ok()) step.failure = reason;
  }
  for (const auto& lane : forward_) lane->Close(reason);
  for (const auto& lane : backward_) lane->Close(reason);
}

void PipelineExecutor::Restart() {
  for (const auto& lane : forward_) lane->Reopen();
  for (const auto& lane : backward_) lane->Reopen();
  for (PipelineStage& stage : stages_) stage.Clear();
}

absl::StatusOr<Score> PipelineExecutor::TrainStep(
    const std::vector<Batch>& microbatches) {
  TANDEM_RETURN_IF_ERROR(CheckMicrobatches(schedule_, microbatches));
  Step step;
  step.microbatches = &microbatches;
  step.scores.resize(microbatches.size());
  for (const Batch& each : microbatches) {
    step.predictions += static_cast<double>(each.size);
  }
  std::vector<std::future<absl::Status>> running;
  for (int device = 0; device < schedule_.devices(); ++device) {
    running.push_back(places_[device]->Submit(
        [this, device, &step] { return RunDevice(device, step); }));
  }
  absl::Status done;
  for (std::future<absl::Status>& each : running) done.Update(each.get());
  if (!done.ok()) {
    Restart();
    absl::MutexLock lock(&step.mutex);
    return step.failure.ok() ? done : step.failure;
  }
  Score score;
  for (const Score& each : step.scores) score += each;
  return score;
}

}  // namespace tandem
