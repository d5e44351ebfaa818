// Step state: what the parts of PipelineExecutor share.

#ifndef TANDEM_PARALLEL_PIPELINE_STEP_H_
#define TANDEM_PARALLEL_PIPELINE_STEP_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "core/device/device.h"
#include "core/flight/recorder.h"
#include "core/loss/deferred_score.h"
#include "core/model/batch.h"
#include "core/random/sample_scope.h"
#include "parallel/pipeline/executor.h"
#include "parallel/pipeline/watch.h"
#include "parallel/schedule/schedule.h"

namespace tandem {

// "forward", "backward of the input". Text that is never freed.
const char* NameOf(ActionKind kind);
// A new entry of the process's flight recorder.
FlightRecorder::Id NoteFlight(const Action& action);

// What runs: a training step, or a forward-only pass.
struct PipelineExecutor::Step {
  const std::vector<Batch>* microbatches = nullptr;
  bool trains = true;
  bool keeps_outputs = false;
  const StepGradients* gradients = nullptr;  // of a training step
  StepSamples samples;
  std::vector<int64_t> rows;    // by microbatch
  std::vector<int64_t> firsts;  // samples before the microbatch
  int64_t size = 0;             // samples in all
  // By microbatch: as the loss has left them, and at the end in full, if they
  // are read.
  std::vector<DeferredScore> scores;
  std::optional<size_t> first_score;  // of those that weigh by samples
  std::vector<at::Tensor> outputs;    // by microbatch
  // Of a training step, by stage: after it all its gradients are there.
  std::vector<Action> last_gradients;
  absl::Mutex mutex;
  absl::Status failure ABSL_GUARDED_BY(mutex);  // the first
};

struct PipelineExecutor::Local {
  Local(int in_schedule, c10::Device on) : index(in_schedule), device(on) {}

  int index;  // in the schedule
  c10::Device device;
  std::vector<Action> forwards;                  // of a forward-only pass
  const std::vector<Action>* actions = nullptr;  // of the step under way
  DeviceProgress progress;
  std::unique_ptr<DeviceThread> thread;  // null: the caller's. Last
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_PIPELINE_STEP_H_
