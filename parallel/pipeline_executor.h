// Runs a schedule: one thread a device, no lock over all, no polling.

#ifndef TANDEM_PARALLEL_PIPELINE_EXECUTOR_H_
#define TANDEM_PARALLEL_PIPELINE_EXECUTOR_H_

#include <ATen/core/Tensor.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "core/batch.h"
#include "core/device.h"
#include "core/loss.h"
#include "parallel/pipeline_stage.h"
#include "parallel/schedule.h"
#include "parallel/stage_link.h"

namespace tandem {

struct PipelineOptions {
  // How long a stage waits for a neighbour.
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
};

// The stages of one process. Not thread-safe.
class PipelineExecutor {
 public:
  // `stages` in the order of the model, each on the device that the schedule
  // has it on: stages of one schedule device share a c10::Device, and a thread.
  // Validates the schedule, with channels as large as it needs.
  static absl::StatusOr<std::unique_ptr<PipelineExecutor>> Create(
      Schedule schedule, std::vector<PipelineStage> stages, LossFunction loss,
      const PipelineOptions& options = {});
  ~PipelineExecutor();

  // Forward and backward of all microbatches (schedule.microbatches of them, in
  // order; none empty): adds the gradients of the whole batch's mean loss to
  // the parameters', and returns its score. When one stage fails all stop, and
  // the error names stage, microbatch and layer; gradients are then undefined.
  absl::StatusOr<Score> TrainStep(const std::vector<Batch>& microbatches);

  const Schedule& schedule() const { return schedule_; }
  const std::vector<PipelineStage>& stages() const { return stages_; }

 private:
  PipelineExecutor(Schedule schedule, std::vector<PipelineStage> stages,
                   LossFunction loss);

  struct Step {
    const std::vector<Batch>* microbatches = nullptr;
    double predictions = 0;     // samples in all
    std::vector<Score> scores;  // by microbatch
    absl::Mutex mutex;
    absl::Status failure ABSL_GUARDED_BY(mutex);  // the first
  };

  absl::Status Connect(int capacity, const PipelineOptions& options);
  absl::Status RunDevice(int device, Step& step);
  absl::Status RunAction(const Action& action, Step& step);
  absl::Status RunForward(const Action& action, Step& step);
  absl::Status RunBackward(const Action& action);
  void Fail(Step& step, const absl::Status& reason);
  void Restart();

  Schedule schedule_;
  std::vector<PipelineStage> stages_;
  LossFunction loss_;
  // Behind stage i: activations on, gradients back.
  std::vector<std::unique_ptr<StageLane>> forward_;
  std::vector<std::unique_ptr<StageLane>> backward_;
  std::vector<std::unique_ptr<Place>> places_;  // by device; last
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_PIPELINE_EXECUTOR_H_
