// Device step: what the thread of one device does in a step of the executor.

#ifndef TANDEM_PARALLEL_PIPELINE_DEVICE_STEP_H_
#define TANDEM_PARALLEL_PIPELINE_DEVICE_STEP_H_

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/flight/recorder.h"
#include "parallel/channel/channel.h"
#include "parallel/pipeline/executor.h"
#include "parallel/pipeline/stage/stage.h"
#include "parallel/pipeline/stage_gradients.h"
#include "parallel/pipeline/step.h"
#include "parallel/pipeline/timeline.h"
#include "parallel/schedule/schedule.h"

namespace tandem {

class PipelineExecutor::DeviceStep {
 public:
  DeviceStep(PipelineExecutor& executor, Local& local, Step& step)
      : executor_(executor), local_(local), step_(step) {}

  // All actions of the device, and what comes after them. An error ends the
  // step on the other devices too.
  absl::Status Run();

 private:
  using Clock = DeviceMoment::Clock;

  absl::Status RunActions();
  absl::Status FinishStages() const;
  absl::Status FinishScores();
  void NoteHeld();

  // On a microbatch that other replicas may have.
  absl::Status ActAbsent(const Action& action) const;
  absl::Status RunAction(const Action& action, ActionMoments& time);
  absl::Status Compute(const Action& action, ActionMoments& time);
  absl::Status RunForward(const Action& action, ActionMoments& time);
  absl::Status RunLoss(const Action& action, const StageMessage& inputs,
                       ActionMoments& time);
  absl::Status RunLayers(const Action& action, const StageMessage& inputs,
                         ActionMoments& time);
  absl::Status RunGradients(const Action& action, ActionMoments& time);
  absl::Status RunBackward(const Action& action, ActionMoments& time);
  absl::Status RunBackwardWeight(const Action& action, ActionMoments& time);
  absl::Status ComputeWeights(const Action& action);

  absl::StatusOr<StageMessage> InputsOf(const Action& action) const;
  StagePass PassOf(int microbatch) const;
  absl::Status CheckDensity(size_t index);
  const Batch& BatchOf(const Action& action) const;
  PipelineStage& StageOf(const Action& action) const;
  // Null: nobody is told.
  StageGradients* GradientsOf(int stage) const;
  // Are all gradients of the stage there after it?
  bool IsLastOfStage(const Action& action) const;
  int NumberOf(const Action& action) const;
  DeviceMoment Now() const { return DeviceMoment::Now(local_.device); }
  // To be watched until progress.Ends().
  void Starts(const Action& action, Clock::time_point now);

  PipelineExecutor& executor_;
  Local& local_;
  Step& step_;
  std::vector<ActionMoments> times_;
  int last_ = -1;                   // the number of the action that ran last
  FlightRecorder::Id flight_ = -1;  // of the one that runs
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_PIPELINE_DEVICE_STEP_H_
