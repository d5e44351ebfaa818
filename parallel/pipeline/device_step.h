// Device step: what the thread of one device does in a step of the executor.

#ifndef TANDEM_PARALLEL_PIPELINE_DEVICE_STEP_H_
#define TANDEM_PARALLEL_PIPELINE_DEVICE_STEP_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "core/device/device.h"
#include "core/flight/recorder.h"
#include "core/loss/loss.h"
#include "core/loss/loss_terms.h"
#include "core/model/batch.h"
#include "parallel/channel/channel.h"
#include "parallel/pipeline/executor.h"
#include "parallel/pipeline/stage/stage.h"
#include "parallel/pipeline/timeline.h"
#include "parallel/pipeline/training_step.h"
#include "parallel/pipeline/watch.h"
#include "parallel/schedule/schedule.h"

namespace tandem {

// "forward", "backward of the input". Text that is never freed.
const char* ActionName(ActionKind kind);

// What runs on all devices: a training step, or a forward-only pass.
struct PipelineExecutor::Step {
  const std::vector<Batch>* microbatches = nullptr;
  bool trains = true;
  bool keeps_outputs = false;
  const StepGradients* gradients = nullptr;  // of a training step
  StepSamples samples;
  std::vector<int64_t> rows;    // by microbatch
  std::vector<int64_t> firsts;  // samples before the microbatch
  int64_t size = 0;             // samples in all
  // Scores by microbatch: as the loss has left them, and at the end in full, if
  // they are read.
  StepLosses losses;
  std::optional<size_t> first_score;  // of those that weigh by samples
  std::vector<at::Tensor> outputs;    // by microbatch
  // By stage, in training: the action after which all its gradients are there.
  std::vector<Action> last_gradients;
  absl::Mutex mutex;
  absl::Status failure ABSL_GUARDED_BY(mutex);  // the first
};

// One of this rank's devices.
struct PipelineExecutor::Local {
  Local(int in_schedule, c10::Device on) : index(in_schedule), device(on) {}

  int index;  // in the schedule
  c10::Device device;
  std::vector<Action> forwards;                  // of a forward-only pass
  const std::vector<Action>* actions = nullptr;  // of the step under way
  DeviceProgress progress;
  std::unique_ptr<DeviceThread> thread;  // null: the caller's. Last
};

class PipelineExecutor::DeviceStep {
 public:
  DeviceStep(PipelineExecutor& executor, Local& local, Step& step)
      : executor_(executor), local_(local), step_(step) {}

  // All of the device's actions on the microbatches that the step has.
  absl::Status RunActions();
  // What is left when all of them are done.
  absl::Status Finish();

  std::vector<ActionMoments> TakeMoments() { return std::move(moments_); }

 private:
  using Clock = DeviceMoment::Clock;

  // On a microbatch that other replicas may have.
  absl::Status RunMissing(const Action& action) const;

  // Before the first action; and an action on parameters.
  absl::Status BeginParameters() const;
  absl::Status MoveParameters(const Action& action) const;

  // The parts of an action, in this order.
  absl::Status Begin(const Action& action);
  absl::StatusOr<StageMessage> Wait(const Action& action);
  absl::StatusOr<StageMessage> Compute(const Action& action,
                                       const StageMessage& input);
  absl::Status Send(const Action& action, const StageMessage& output);
  absl::Status End(const Action& action);

  absl::StatusOr<StageMessage> BatchInputs(const Action& action) const;
  absl::StatusOr<std::optional<LossTargets>> Targets(
      const Action& action) const;
  StagePass Pass(int microbatch) const;
  absl::Status NoteScore(size_t index, const DeferredScore& score);
  absl::StatusOr<StageMessage> Backward(const Action& action,
                                        const StageMessage& gradients);
  absl::Status FinishScores();

  PipelineStage& Stage(const Action& action) const;
  // Null: nobody is told.
  StageGradients* Gradients(int stage) const;
  // Are all gradients of the stage there after it?
  bool IsLastOfStage(const Action& action) const;
  // The action under way is watched until progress.Ends().
  void Watch(Clock::time_point since);
  void NoteHeld();

  PipelineExecutor& executor_;
  Local& local_;
  Step& step_;
  std::vector<ActionMoments> moments_;  // the last one's: the action under way
  int number_ = -1;                     // of the action under way, or the last
  FlightRecorder::Id flight_ = -1;      // of the same
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_PIPELINE_DEVICE_STEP_H_
