// What a device's thread does in a step: all actions, and what comes after
// them.

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/loss/deferred_score.h"
#include "parallel/pipeline/executor.h"
#include "parallel/pipeline/step.h"

namespace tandem {

// What is left when all actions are done.
absl::Status PipelineExecutor::FinishDevice(const Local& local,
                                            const Step& step) {
  for (int i : schedule_.stages_of[static_cast<size_t>(local.index)]) {
    for (ChannelSender* sender :
         {channels_->outputs(i), channels_->further(i)}) {
      if (sender != nullptr) TANDEM_RETURN_IF_ERROR(sender->Flush());
    }
  }
  if (!step.trains) return absl::OkStatus();
  for (int i : schedule_.stages_of[static_cast<size_t>(local.index)]) {
    StageGradients* const gradients = GradientsOf(i, step);
    if (gradients != nullptr) TANDEM_RETURN_IF_ERROR(gradients->Finish());
  }
  const auto& after = step.gradients->after_device;
  return after ? after(local.index) : absl::OkStatus();
}

// Where the last stage is: waits for the device, once a step, and is watched as
// its last action.
absl::Status PipelineExecutor::FinishScores(Local& local, int last,
                                            Step& step) {
  const bool has_loss =
      local.index == DeviceOfStage(schedule_, schedule_.stages - 1);
  if (!has_loss || last < 0) return absl::OkStatus();
  local.progress.Starts(last, ActionTime::Clock::now());
  absl::StatusOr<std::vector<Score>> scores =
      CatchTorchOr([&] { return ReadScores(step.deferred_scores); });
  local.progress.Ends();
  if (!scores.ok()) return Annotate(scores.status(), "reading the score");
  step.scores = *std::move(scores);
  return absl::OkStatus();
}

absl::Status PipelineExecutor::RunDevice(Local& local, Step& step) {
  std::vector<ActionTime> times;
  times.reserve(local.actions->size());
  absl::Status done;
  int last = -1;
  for (const Action& action : *local.actions) {
    if (action.microbatch >= static_cast<int>(step.rows.size())) continue;
    last = NumberOf(action, *local.actions);
    times.emplace_back();
    done = RunAction(action, step, local, times.back());
    if (!done.ok()) break;
    NoteHeld(local);
  }
  if (done.ok()) done = FinishDevice(local, step);
  if (done.ok()) done = FinishScores(local, last, step);
  if (!done.ok()) Fail(step, done);
  if (step.trains) {
    timeline_[static_cast<size_t>(local.index)] = std::move(times);
  }
  return done;
}

void PipelineExecutor::NoteHeld(const Local& local) {
  int held = 0;
  for (int i : schedule_.stages_of[static_cast<size_t>(local.index)]) {
    held += stages_[static_cast<size_t>(i)]->microbatches_held();
  }
  int& peak = peaks_[static_cast<size_t>(local.index)];
  peak = std::max(peak, held);
}

}  // namespace tandem
