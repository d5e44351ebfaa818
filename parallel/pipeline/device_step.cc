#include "parallel/pipeline/device_step.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/loss/deferred_score.h"

namespace tandem {

// What is left when all actions are done.
absl::Status PipelineExecutor::DeviceStep::FinishStages() const {
  const auto device = static_cast<size_t>(local_.index);
  const PipelineChannels& channels = *executor_.channels_;
  for (int i : executor_.schedule_.stages_of[device]) {
    for (ChannelSender* sender : {channels.outputs(i), channels.further(i)}) {
      if (sender != nullptr) TANDEM_RETURN_IF_ERROR(sender->Flush());
    }
  }
  if (!step_.trains) return absl::OkStatus();
  for (int i : executor_.schedule_.stages_of[device]) {
    StageGradients* const gradients = GradientsOf(i);
    if (gradients != nullptr) TANDEM_RETURN_IF_ERROR(gradients->Finish());
  }
  const auto& after = step_.gradients->after_device;
  return after ? after(local_.index) : absl::OkStatus();
}

// Where the last stage is: waits for the device, once a step, and is watched as
// its last action.
absl::Status PipelineExecutor::DeviceStep::FinishScores() {
  const Schedule& schedule = executor_.schedule_;
  const bool has_loss =
      local_.index == DeviceOfStage(schedule, schedule.stages - 1);
  const bool reads = !step_.trains || !step_.gradients->defers_scores;
  if (!has_loss || !reads || last_ < 0) return absl::OkStatus();
  local_.progress.Starts(last_, Clock::now());
  const absl::StatusOr<std::vector<Score>> scores =
      CatchTorchOr([&] { return ReadScores(step_.scores); });
  local_.progress.Ends();
  if (!scores.ok()) return Annotate(scores.status(), "reading the score");
  for (size_t i = 0; i < scores->size(); ++i) step_.scores[i] = {(*scores)[i]};
  return absl::OkStatus();
}

absl::Status PipelineExecutor::DeviceStep::ActAbsent(
    const Action& action) const {
  if (!step_.trains || !step_.gradients->absent) return absl::OkStatus();
  if (action.microbatch >= step_.gradients->microbatches) {
    return absl::OkStatus();
  }
  const absl::Status done = step_.gradients->absent(action);
  return done.ok() ? done : Annotate(done, executor_.Describe(action));
}

// Those of the microbatches that the step has.
absl::Status PipelineExecutor::DeviceStep::RunActions() {
  times_.reserve(local_.actions->size());
  for (const Action& action : *local_.actions) {
    if (action.microbatch >= static_cast<int>(step_.rows.size())) {
      TANDEM_RETURN_IF_ERROR(ActAbsent(action));
      continue;
    }
    last_ = NumberOf(action);
    times_.emplace_back();
    TANDEM_RETURN_IF_ERROR(RunAction(action, times_.back()));
    NoteHeld();
  }
  return absl::OkStatus();
}

absl::Status PipelineExecutor::DeviceStep::Run() {
  absl::Status done = RunActions();
  if (done.ok()) done = FinishStages();
  if (done.ok()) done = FinishScores();
  if (!done.ok()) executor_.Fail(step_, done);
  if (step_.trains) {
    executor_.moments_[static_cast<size_t>(local_.index)] = std::move(times_);
  }
  return done;
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

const Batch& PipelineExecutor::DeviceStep::BatchOf(const Action& action) const {
  return (*step_.microbatches)[static_cast<size_t>(action.microbatch)];
}

PipelineStage& PipelineExecutor::DeviceStep::StageOf(
    const Action& action) const {
  return *executor_.stages_[static_cast<size_t>(action.stage)];
}

StageGradients* PipelineExecutor::DeviceStep::GradientsOf(int stage) const {
  const std::vector<StageGradients*>& all = step_.gradients->of_stages;
  return all.empty() ? nullptr : all[static_cast<size_t>(stage)];
}

bool PipelineExecutor::DeviceStep::IsLastOfStage(const Action& action) const {
  return action == step_.last_gradients[static_cast<size_t>(action.stage)];
}

int PipelineExecutor::DeviceStep::NumberOf(const Action& action) const {
  return static_cast<int>(&action - local_.actions->data());
}

void PipelineExecutor::DeviceStep::Starts(const Action& action,
                                          Clock::time_point now) {
  local_.progress.Starts(NumberOf(action), now);
  FlightRecorder::OfProcess().Start(flight_);
}

}  // namespace tandem
