#include "tools/bench/pipeline/closed_loop.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <functional>
#include <future>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "core/base/status_macros.h"
#include "core/device/device.h"
#include "core/model/batch.h"
#include "core/model/layer_list.h"
#include "models/classification_loss.h"
#include "parallel/partition/partition.h"
#include "parallel/schedule/prediction.h"
#include "parallel/schedule/schedules.h"
#include "parallel/strategy/mesh_strategy.h"
#include "tools/bench/measure/cores.h"
#include "tools/bench/measure/median.h"
#include "tools/bench/measure/usage.h"
#include "tools/bench/rank/inputs.h"
#include "tools/bench/stages/calibration.h"
#include "tools/bench/stages/cut.h"

namespace tandem {
namespace {

const c10::Device kCpu(c10::kCPU);

// A core with a thread of its own, and what is profiled there.
struct Core {
  std::unique_ptr<DeviceThread> place;
  LayerList layers;
  ModelProfile profile;
};

class ClosedLoop {
 public:
  ClosedLoop(const ClosedLoopOptions& options, LayerSpecs specs)
      : options_(options),
        specs_(std::move(specs)),
        batch_(MakeBatch(options.workload, "batch.")) {}

  absl::StatusOr<ClosedLoopResult> Run();

 private:
  absl::Status OnEachCore(const std::function<absl::Status(Core&)>& work);
  absl::Status StartCores();
  absl::StatusOr<ModelProfile> Profile();
  absl::Status MakePipeline();
  absl::StatusOr<double> Predict(const ScheduleCosts& costs,
                                 const CalibratedTimes& times) const;
  absl::StatusOr<ClosedLoopRound> RunRound();
  absl::StatusOr<double> Measure();

  const ClosedLoopOptions options_;
  const LayerSpecs specs_;
  const Batch batch_;
  Schedule schedule_;
  SendingCost sending_;
  Cuts cuts_;
  std::vector<Core> cores_;
  std::unique_ptr<StageCalibration> stages_;
  std::unique_ptr<MeshStrategy> pipeline_;
};

// At the same time, so that all are as busy as in training.
absl::Status ClosedLoop::OnEachCore(
    const std::function<absl::Status(Core&)>& work) {
  std::vector<std::future<absl::Status>> running;
  for (Core& core : cores_) {
    running.push_back(
        core.place->Submit([&work, &core] { return work(core); }));
  }
  absl::Status done;
  for (auto& each : running) done.Update(each.get());
  return done;
}

absl::Status ClosedLoop::StartCores() {
  for (const int core : options_.cores) {
    cores_.emplace_back();
    cores_.back().place = std::make_unique<DeviceThread>(kCpu);
    cores_.back().layers = MakeLayers(specs_, kInputsSeed);
    TANDEM_RETURN_IF_ERROR(
        cores_.back().place->Run([core] { return BindToCore(core); }));
  }
  return absl::OkStatus();
}

// The mean of the cores'.
absl::StatusOr<ModelProfile> ClosedLoop::Profile() {
  TANDEM_RETURN_IF_ERROR(OnEachCore([&](Core& core) {
    TANDEM_ASSIGN_OR_RETURN(core.profile,
                            ProfileMicrobatch(core.layers, batch_, schedule_));
    return absl::OkStatus();
  }));
  ModelProfile mean = cores_.front().profile;
  for (size_t i = 0; i < mean.layers.size(); ++i) {
    double LayerProfile::*const times[] = {&LayerProfile::forward,
                                           &LayerProfile::backward_input,
                                           &LayerProfile::backward_weight};
    for (const auto time : times) {
      double sum = 0;
      for (const Core& core : cores_) sum += core.profile.layers[i].*time;
      mean.layers[i].*time = sum / static_cast<double>(cores_.size());
    }
  }
  return mean;
}

absl::Status ClosedLoop::MakePipeline() {
  std::vector<DeviceThread*> places;
  for (const Core& core : cores_) places.push_back(core.place.get());
  TANDEM_ASSIGN_OR_RETURN(
      stages_, StageCalibration::Create(specs_, schedule_, cuts_,
                                        options_.weight_gradient_batch, batch_,
                                        std::move(places)));
  MeshStrategyOptions options;
  options.schedule = schedule_;
  options.cuts = cuts_;
  options.devices.assign(cores_.size(), kCpu);
  options.weight_gradient_batch = options_.weight_gradient_batch;
  options.seed = kInputsSeed;
  SgdOptions sgd;
  sgd.momentum = 0.9;
  options.optimizer = sgd;
  TANDEM_ASSIGN_OR_RETURN(
      pipeline_, MeshStrategy::Create(specs_, CrossEntropy, options, nullptr));
  return pipeline_->OnDevices([this](int device) {
    return BindToCore(options_.cores[static_cast<size_t>(device)]);
  });
}

// The last device to end its actions and its optimizer.
absl::StatusOr<double> ClosedLoop::Predict(const ScheduleCosts& costs,
                                           const CalibratedTimes& times) const {
  TANDEM_ASSIGN_OR_RETURN(const SchedulePrediction prediction,
                          PredictSchedule(schedule_, costs));
  double step = 0;
  for (size_t device = 0; device < cores_.size(); ++device) {
    step = std::max(step, 1e3 * prediction.devices[device].back().end +
                              times.optimizer[device]);
  }
  return step;
}

absl::StatusOr<double> ClosedLoop::Measure() {
  std::vector<double> times;
  for (int i = 0; i <= options_.steps; ++i) {
    const Usage before = Usage::Now();
    TANDEM_RETURN_IF_ERROR(
        pipeline_->TrainStep(batch_, /*learning_rate=*/1e-4).status());
    // The first finds others' data in the caches.
    if (i > 0) times.push_back((Usage::Now() - before).wall_ms);
  }
  return Median(times);
}

absl::StatusOr<ClosedLoopRound> ClosedLoop::RunRound() {
  ClosedLoopRound round;
  TANDEM_ASSIGN_OR_RETURN(const ModelProfile profile, Profile());
  TANDEM_ASSIGN_OR_RETURN(const CalibratedTimes times, stages_->Measure());
  round.optimizer =
      *std::max_element(times.optimizer.begin(), times.optimizer.end());
  ScheduleCosts costs = ScheduleCostsOf(profile, cuts_, schedule_, sending_);
  TANDEM_ASSIGN_OR_RETURN(round.by_layers, Predict(costs, times));
  costs.stages = times.stages;
  TANDEM_ASSIGN_OR_RETURN(round.by_stages, Predict(costs, times));
  TANDEM_ASSIGN_OR_RETURN(round.measured, Measure());
  return round;
}

absl::StatusOr<ClosedLoopResult> ClosedLoop::Run() {
  const int devices = static_cast<int>(options_.cores.size());
  TANDEM_ASSIGN_OR_RETURN(
      schedule_, MakeSchedule(options_.schedule, {devices, options_.chunks,
                                                  options_.microbatches}));
  TANDEM_RETURN_IF_ERROR(StartCores());
  TANDEM_ASSIGN_OR_RETURN(const ModelProfile first, Profile());
  TANDEM_ASSIGN_OR_RETURN(sending_, MeasureSending());
  TANDEM_ASSIGN_OR_RETURN(cuts_,
                          CutByProfile(specs_, first, schedule_, sending_));
  TANDEM_RETURN_IF_ERROR(MakePipeline());
  ClosedLoopResult result;
  result.cuts = cuts_;
  for (int i = 0; i < options_.rounds; ++i) {
    TANDEM_ASSIGN_OR_RETURN(const ClosedLoopRound round, RunRound());
    result.rounds.push_back(round);
  }
  return result;
}

}  // namespace

absl::StatusOr<ClosedLoopResult> RunClosedLoop(
    const ClosedLoopOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(LayerSpecs specs, MakeSpecs(options.workload));
  return ClosedLoop(options, std::move(specs)).Run();
}

}  // namespace tandem
