#include "tools/bench/stages/calibration.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/full_like.h>

#include <algorithm>
#include <future>
#include <optional>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/loss/loss.h"
#include "core/model/layer_list.h"
#include "models/classification_loss.h"
#include "parallel/optim/make_optimizer.h"
#include "parallel/pipeline/microbatches.h"
#include "parallel/pipeline/model.h"
#include "tools/bench/measure/cores.h"
#include "tools/bench/measure/median.h"

namespace tandem {
namespace {

double SecondsSince(const Usage& begin) {
  return (Usage::Now() - begin).wall_ms / 1e3;
}

}  // namespace

nlohmann::json CalibrationJson(const CalibratedTimes& times) {
  const auto ms = [&](double StageCost::*part) {
    nlohmann::json list = nlohmann::json::array();
    for (const StageCost& each : times.stages) list.push_back(1e3 * each.*part);
    return list;
  };
  return {{"forward", ms(&StageCost::forward)},
          {"backward_input", ms(&StageCost::backward_input)},
          {"backward_weight", ms(&StageCost::backward_weight)},
          {"optimizer",
           *std::max_element(times.optimizer.begin(), times.optimizer.end())}};
}

absl::StatusOr<std::unique_ptr<StageCalibration>> StageCalibration::Create(
    const LayerSpecs& specs, const Schedule& schedule, const Cuts& cuts,
    const Batch& batch, std::vector<DeviceThread*> places) {
  auto made = absl::WrapUnique(new StageCalibration(schedule));
  PipelineLayout layout;
  for (const DeviceThread* place : places)
    layout.devices.push_back(place->device());
  PipelineModelOptions model;
  model.cuts = cuts;
  model.splits_backward = SplitsBackward(schedule);
  TANDEM_ASSIGN_OR_RETURN(
      made->stages_, MakeStages(specs, schedule, layout, model, CrossEntropy));
  TANDEM_RETURN_IF_ERROR(made->MakeInputs(batch));
  TANDEM_RETURN_IF_ERROR(made->MakeDevices(places));
  return made;
}

absl::StatusOr<std::unique_ptr<StageCalibration>> StageCalibration::OnCores(
    const LayerSpecs& specs, const Schedule& schedule, const Cuts& cuts,
    const Batch& batch, const std::vector<int>& cores) {
  std::vector<std::unique_ptr<DeviceThread>> own;
  std::vector<DeviceThread*> places;
  for (const int core : cores) {
    own.push_back(std::make_unique<DeviceThread>(c10::Device(c10::kCPU)));
    places.push_back(own.back().get());
    TANDEM_RETURN_IF_ERROR(
        own.back()->Run([core] { return BindToCore(core); }));
  }
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<StageCalibration> made,
                          Create(specs, schedule, cuts, batch, places));
  made->own_places_ = std::move(own);
  return made;
}

StagePass StageCalibration::MakePass(int microbatch) const {
  StagePass pass;
  pass.microbatch = {microbatch, schedule_.microbatches, false, false};
  const Batch& batch = microbatches_[static_cast<size_t>(microbatch)];
  pass.loss_weight =
      static_cast<double>(batch.size) / static_cast<double>(batch_size_);
  return pass;
}

absl::Status StageCalibration::MakeInputs(const Batch& batch) {
  batch_size_ = batch.size;
  TANDEM_ASSIGN_OR_RETURN(
      microbatches_,
      SplitBatch(batch, EvenSizes(batch.size, schedule_.microbatches)));
  if (microbatches_.size() != static_cast<size_t>(schedule_.microbatches)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a batch of ", batch.size, " samples gives ",
                     microbatches_.size(), " microbatches, but schedule ",
                     schedule_.name, " has ", schedule_.microbatches));
  }
  inputs_.resize(stages_.size());
  gradients_.resize(stages_.size());
  for (int m = 0; m < schedule_.microbatches; ++m) {
    StageMessage message = {microbatches_[static_cast<size_t>(m)].inputs};
    for (size_t stage = 0; stage < stages_.size(); ++stage) {
      inputs_[stage].push_back(message);
      StagePass pass = MakePass(m);
      pass.keeps = StageKeeps::kNothing;
      TANDEM_ASSIGN_OR_RETURN(StageOutput output,
                              stages_[stage]->Forward(pass, message));
      message = std::move(output.message);
      gradients_[stage].emplace_back();
      if (stage + 1 == stages_.size()) continue;
      TANDEM_RETURN_IF_ERROR(CatchTorch([&] {
        for (const at::Tensor& each : message) {
          gradients_[stage].back().push_back(at::full_like(each, 1e-6));
        }
      }));
    }
  }
  return absl::OkStatus();
}

absl::Status StageCalibration::MakeDevices(
    const std::vector<DeviceThread*>& places) {
  SgdOptions sgd;
  sgd.momentum = 0.9;
  for (size_t i = 0; i < places.size(); ++i) {
    NamedTensors parameters;
    for (const int stage : schedule_.stages_of[i]) {
      for (auto& each :
           NamedParameters(stages_[static_cast<size_t>(stage)]->layers())) {
        parameters.push_back(std::move(each));
      }
    }
    Device device;
    device.place = places[i];
    device.buffers = MakeFlatBuffers(parameters);
    TANDEM_ASSIGN_OR_RETURN(device.optimizer,
                            MakeOptimizer(sgd, device.buffers));
    devices_.push_back(std::move(device));
  }
  return absl::OkStatus();
}

absl::Status StageCalibration::RunAction(const Action& action) {
  PipelineStage& stage = *stages_[static_cast<size_t>(action.stage)];
  Samples& samples = samples_[static_cast<size_t>(action.stage)];
  const auto m = static_cast<size_t>(action.microbatch);
  const StageMessage& inputs = inputs_[static_cast<size_t>(action.stage)][m];
  const StageMessage& gradients =
      gradients_[static_cast<size_t>(action.stage)][m];
  std::optional<LossTargets> targets;
  if (stage.loss()) targets = microbatches_[m].targets;
  const Usage begin = Usage::Now();
  switch (action.kind) {
    case ActionKind::kForward:
      TANDEM_RETURN_IF_ERROR(
          stage.Forward(MakePass(action.microbatch), inputs, targets).status());
      samples.forward.push_back(SecondsSince(begin));
      break;
    case ActionKind::kBackward:
      TANDEM_RETURN_IF_ERROR(
          stage.BackwardInput(action.microbatch, gradients).status());
      TANDEM_RETURN_IF_ERROR(stage.BackwardWeight(action.microbatch));
      samples.backward_input.push_back(SecondsSince(begin));
      break;
    case ActionKind::kBackwardInput:
      TANDEM_RETURN_IF_ERROR(
          stage.BackwardInput(action.microbatch, gradients).status());
      samples.backward_input.push_back(SecondsSince(begin));
      break;
    case ActionKind::kBackwardWeight:
      TANDEM_RETURN_IF_ERROR(stage.BackwardWeight(action.microbatch));
      samples.backward_weight.push_back(SecondsSince(begin));
      break;
    case ActionKind::kUnshard:
    case ActionKind::kReshard:
      break;
  }
  return absl::OkStatus();
}

absl::Status StageCalibration::RunDevice(size_t index, int runs,
                                         double* optimizer_ms) {
  Device& device = devices_[index];
  std::vector<double> times;
  for (int run = 0; run < runs; ++run) {
    for (const auto& buffer : device.buffers) buffer->ZeroGrad();
    for (const Action& action : schedule_.actions[index]) {
      TANDEM_RETURN_IF_ERROR(RunAction(action));
    }
    const Usage begin = Usage::Now();
    for (const int stage : schedule_.stages_of[index]) {
      TANDEM_RETURN_IF_ERROR(
          stages_[static_cast<size_t>(stage)]->FlushWeights());
    }
    device.optimizer->Step(/*learning_rate=*/0);
    times.push_back(1e3 * SecondsSince(begin));
  }
  *optimizer_ms = Median(times);
  return absl::OkStatus();
}

absl::StatusOr<CalibratedTimes> StageCalibration::Measure(int runs) {
  samples_.assign(stages_.size(), {});
  CalibratedTimes times;
  times.optimizer.resize(devices_.size());
  std::vector<std::future<absl::Status>> running;
  for (size_t i = 0; i < devices_.size(); ++i) {
    running.push_back(devices_[i].place->Submit([this, i, runs, &times] {
      return RunDevice(i, runs, &times.optimizer[i]);
    }));
  }
  absl::Status done;
  for (auto& each : running) done.Update(each.get());
  TANDEM_RETURN_IF_ERROR(done);
  for (const Samples& each : samples_) {
    times.stages.push_back({Median(each.forward), Median(each.backward_input),
                            MedianOrZero(each.backward_weight)});
  }
  return times;
}

}  // namespace tandem
