// Pipeline executor: runs a schedule with one thread a device (the caller's,
// where there is only one) and no lock over all.

#ifndef TANDEM_PARALLEL_PIPELINE_EXECUTOR_H_
#define TANDEM_PARALLEL_PIPELINE_EXECUTOR_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/device/device.h"
#include "core/model/batch.h"
#include "parallel/channel/channel.h"
#include "parallel/pipeline/channels.h"
#include "parallel/pipeline/options.h"
#include "parallel/pipeline/stage/stage.h"
#include "parallel/pipeline/timeline.h"
#include "parallel/pipeline/training_step.h"
#include "parallel/pipeline/watch.h"
#include "parallel/schedule/schedule.h"
#include "parallel/schedule/validator.h"

namespace tandem {

// The stages of one rank. All ranks of a pipeline call the same methods with
// the same sizes. Not thread-safe.
//
// Fault points: "stage:S:forward:M", "stage:S:backward:M", both from 0, and
// "after_forward", when a training step's last loss is there.
class PipelineExecutor {
 public:
  using Stages = std::vector<std::unique_ptr<PipelineStage>>;
  // What is done for a device of the schedule, on its thread.
  using DeviceWork = std::function<absl::Status(int schedule_device)>;

  // `stages` in the order of the model; null for those of other ranks. Each is
  // on the device that schedule and layout give it. Validates the schedule,
  // with channels as large as it needs. What `layout` names must outlive this.
  static absl::StatusOr<std::unique_ptr<PipelineExecutor>> Create(
      Schedule schedule, Stages stages, PipelineLayout layout,
      const PipelineOptions& options = {});
  ~PipelineExecutor();

  // Forward and backward of all microbatches (at most schedule.microbatches of
  // them, in order; none empty): adds the gradients of the whole batch's mean
  // loss to the parameters', and returns its score where the last stage is
  // (elsewhere an empty one). Inputs are needed where the first stage is
  // (further ones exactly as its layers and later ones read them), and targets
  // where the last is (further ones as the loss reads them); sizes everywhere.
  // In a schedule with more microbatches the actions of the first ones are run,
  // in its order; without any nothing is computed, and gradients are finished
  // all the same.
  //
  // Collectives that layers issue (SyncBatchNorm, tensor parallelism) are part
  // of kForward and kBackward, or of kBackwardInput where backward is split:
  // ranks that run the same schedule meet in them. kBackwardWeight issues none
  // (core/model/collective_node.h), for it is not run by a rank that lacks the
  // microbatch, nor at the same place by ranks whose schedules differ in it
  // alone. A layer's collectives have communicators of their own, one a device
  // thread, and a rank without the microbatch takes part in
  // StepGradients::on_missing.
  //
  // When one stage fails all stop, on all ranks, and the error names stage,
  // microbatch and layer; gradients are then undefined. Within one process
  // another step may follow.
  absl::StatusOr<Score> TrainStep(const std::vector<Batch>& microbatches,
                                  const StepSamples& samples = {},
                                  const StepGradients& gradients = {});
  // The last training step's, once.
  StepLosses TakeLosses() { return std::exchange(losses_, {}); }
  // Numbers of a step's on this rank's devices, as doubles, one after the
  // other. Waits for the devices, watched as an action is.
  absl::StatusOr<std::vector<double>> Read(
      const std::vector<at::Tensor>& numbers);

  // For each of this rank's devices, on its thread, at the same time; the first
  // error.
  absl::Status OnDevices(const DeviceWork& work);

  // Forward alone, of at most schedule.microbatches microbatches: of all that
  // have targets the score, and if `keeps_outputs` the outputs.
  absl::StatusOr<Inference> Infer(const std::vector<Batch>& microbatches,
                                  bool keeps_outputs);

  const Schedule& schedule() const { return schedule_; }
  const ScheduleFacts& facts() const { return facts_; }
  const Stages& stages() const { return stages_; }
  bool has_last_stage() const { return stages_.back() != nullptr; }
  // The last training step's.
  const PipelineMoments& moments() const { return moments_; }
  PipelineTimeline timeline() const { return AwaitTimes(moments_); }
  // Communicator's, for messages to other ranks that streams carry.
  absl::Status Synchronize() const { return channels_->lanes().Synchronize(); }
  void Abort(const absl::Status& reason) { channels_->lanes().Abort(reason); }
  // What this rank sent to other ranks so far.
  ChannelTraffic sent() const { return channels_->sent(); }
  // How many microbatches each device of the schedule held at once so far, at
  // most; 0 for those of other ranks. See facts() for the schedule's bound.
  const std::vector<int>& peak_activations() const { return peaks_; }

 private:
  PipelineExecutor(Schedule schedule, Stages stages, PipelineLayout layout,
                   const PipelineOptions& options);

  // device_step.h; the loop over a device's actions is in device_step.cc.
  struct Step;
  struct Local;      // a device of this rank
  class DeviceStep;  // what its thread does in a step

  absl::Status CheckStages() const;
  void StartThreads();
  absl::Status Run(Step& step);
  void Fail(Step& step, const absl::Status& reason);
  void EndHung(const std::string& message);
  void OnHang(const Local& local, int action, Step& step);
  std::string Describe(const Action& action) const;

  Schedule schedule_;
  ScheduleFacts facts_;
  Stages stages_;
  PipelineLayout layout_;
  PipelineOptions options_;
  struct FaultPoints {
    std::string forward;
    std::string backward;
  };

  std::vector<FaultPoints> fault_points_;  // by stage
  std::unique_ptr<PipelineChannels> channels_;
  PipelineMoments moments_;
  std::vector<int> peaks_;
  StepLosses losses_;
  std::vector<std::unique_ptr<Local>> locals_;
  std::unique_ptr<HangWatch> watch_;  // last: it asks the others
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_PIPELINE_EXECUTOR_H_
