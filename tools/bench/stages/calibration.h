// Calibrated times of the stages of a cut model, measured as a pipeline runs
// them, but without waiting for each other.

#ifndef TANDEM_TOOLS_BENCH_STAGES_CALIBRATION_H_
#define TANDEM_TOOLS_BENCH_STAGES_CALIBRATION_H_

#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/device/device.h"
#include "core/model/batch.h"
#include "core/model/layer.h"
#include "parallel/balance/cut.h"
#include "parallel/optim/flat_buffer.h"
#include "parallel/optim/optimizer.h"
#include "parallel/pipeline/executor.h"
#include "parallel/schedule/schedule.h"
#include "parallel/schedule/simulation.h"

namespace tandem {

// Medians.
struct CalibratedTimes {
  std::vector<StageCost> stages;  // seconds
  std::vector<double> optimizer;  // by device, milliseconds
};

// {"forward", "backward_input", "backward_weight": [ms of each stage],
// "optimizer": ms of the slowest device}.
nlohmann::json CalibrationJson(const CalibratedTimes& times);

// Not thread-safe.
class StageCalibration {
 public:
  // A place for each device of the schedule; they must outlive this. The
  // optimizer is SGD with momentum. Every microbatch's weight gradients are
  // computed by themselves.
  static absl::StatusOr<std::unique_ptr<StageCalibration>> Create(
      const LayerSpecs& specs, const Schedule& schedule, const Cuts& cuts,
      const Batch& batch, std::vector<DeviceThread*> places);
  // The same on threads of its own, each bound to a core; -1: to none.
  static absl::StatusOr<std::unique_ptr<StageCalibration>> OnCores(
      const LayerSpecs& specs, const Schedule& schedule, const Cuts& cuts,
      const Batch& batch, const std::vector<int>& cores);

  // Every device does its actions of the schedule, `runs` times, all devices at
  // the same time: what comes from other stages is there already. Gradients add
  // up as in training.
  absl::StatusOr<CalibratedTimes> Measure(int runs = 3);

 private:
  struct Device {
    DeviceThread* place;
    FlatBuffers buffers;
    std::unique_ptr<Optimizer> optimizer;
  };
  // Seconds of one stage.
  struct Samples {
    std::vector<double> forward;
    std::vector<double> backward_input;
    std::vector<double> backward_weight;
  };

  explicit StageCalibration(const Schedule& schedule) : schedule_(schedule) {}

  absl::Status MakeInputs(const Batch& batch);
  absl::Status MakeDevices(const std::vector<DeviceThread*>& places);
  StagePass MakePass(int microbatch) const;
  absl::Status RunAction(const Action& action);
  absl::Status RunDevice(size_t device, int runs, double* optimizer_ms);

  const Schedule schedule_;
  std::vector<std::unique_ptr<DeviceThread>> own_places_;
  PipelineExecutor::Stages stages_;
  std::vector<Batch> microbatches_;
  int64_t batch_size_ = 0;
  // By stage and microbatch: what comes in, and the gradients of what goes out.
  std::vector<std::vector<StageMessage>> inputs_;
  std::vector<std::vector<StageMessage>> gradients_;
  std::vector<Device> devices_;
  std::vector<Samples> samples_;  // by stage
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_STAGES_CALIBRATION_H_
