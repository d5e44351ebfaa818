#include "tools/bench/pipeline_trainer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/model/layer_links.h"
#include "core/model/layer_list.h"
#include "models/classification_loss.h"
#include "parallel/optim/flat_buffer.h"
#include "parallel/optim/make_optimizer.h"
#include "parallel/optim/optimizer.h"
#include "parallel/partition/partition.h"
#include "parallel/pipeline/microbatches.h"
#include "parallel/pipeline/stage.h"
#include "parallel/profile/layer_profile.h"
#include "parallel/schedule/schedules.h"
#include "tools/bench/bench_inputs.h"
#include "tools/bench/cores.h"
#include "tools/bench/usage.h"

namespace tandem {
namespace {

// The case's layers with the state's values.
absl::StatusOr<LayerList> LayersOf(const PipelineInputs& inputs) {
  TANDEM_ASSIGN_OR_RETURN(LayerList layers, MakeCaseLayers(inputs.bench));
  std::map<std::string, at::Tensor> given(inputs.state.begin(),
                                          inputs.state.end());
  const at::NoGradGuard no_grad;
  for (const auto& all : {NamedParameters(layers), NamedBuffers(layers)}) {
    for (const auto& [name, tensor] : all) tensor.copy_(given.at(name));
  }
  return layers;
}

absl::StatusOr<std::vector<Batch>> Microbatches(const Batch& batch, int count) {
  return SplitBatch(batch, EvenSizes(batch.size, count));
}

absl::StatusOr<Schedule> ScheduleOf(const PipelineSetting& setting,
                                    const PipelinePlace& place) {
  const int devices = place.pipe * static_cast<int>(place.cores.size());
  return MakeSchedule(setting.schedule,
                      {devices, setting.chunks, setting.microbatches});
}

SgdOptions Sgd() {
  SgdOptions sgd;
  sgd.momentum = 0.9;
  return sgd;
}

// "time": as the trainer's --balance=profile.
absl::StatusOr<Cuts> CutsFor(const PipelineInputs& inputs,
                             const PipelineSetting& setting,
                             const Schedule& schedule) {
  TANDEM_ASSIGN_OR_RETURN(const LayerList layers, LayersOf(inputs));
  const auto count = static_cast<int64_t>(layers.size());
  if (setting.cut == "uniform") return UniformCuts(count, schedule.stages);
  TANDEM_ASSIGN_OR_RETURN(
      const std::vector<Batch> parts,
      Microbatches(inputs.batches.front(), setting.microbatches));
  ProfileOptions profile;
  profile.further_inputs = parts.front().further_inputs;
  profile.loss = [&parts](const at::Tensor& output) {
    return CrossEntropy(output, parts.front().targets).loss;
  };
  ModelOutline outline;
  TANDEM_ASSIGN_OR_RETURN(outline.profile,
                          ProfileLayers(layers, parts.front().inputs, profile));
  return PartitionModel({BalanceKind::kProfile}, outline, schedule);
}

// What rank 0 has measured is true for all.
absl::StatusOr<Cuts> CutsForAll(const PipelineInputs& inputs,
                                const PipelineSetting& setting,
                                const Schedule& schedule, Communicator* world) {
  Cuts cuts(static_cast<size_t>(schedule.stages) - 1);
  if (world == nullptr || world->rank() == 0) {
    TANDEM_ASSIGN_OR_RETURN(cuts, CutsFor(inputs, setting, schedule));
  }
  if (world == nullptr) return cuts;
  const at::Tensor numbers = at::tensor(cuts, at::kLong);
  TANDEM_RETURN_IF_ERROR(world->Broadcast(numbers, /*root=*/0));
  const auto* const values = numbers.const_data_ptr<int64_t>();
  return Cuts(values, values + numbers.numel());
}

using Stages = std::vector<std::unique_ptr<PipelineStage>>;

absl::StatusOr<Stages> StagesOf(const PipelineInputs& inputs,
                                const PipelineSetting& setting,
                                const Cuts& cuts) {
  TANDEM_ASSIGN_OR_RETURN(const LayerList layers, LayersOf(inputs));
  const std::vector<LayerLinks> links = LinksOf(layers);
  Stages stages;
  for (const LayerRange& part :
       PartsOf(cuts, static_cast<int64_t>(layers.size()))) {
    StageOptions options;
    options.name = absl::StrCat("stage ", stages.size());
    options.incoming = SkipsBefore(links, static_cast<size_t>(part.begin));
    options.outgoing = SkipsBefore(links, static_cast<size_t>(part.end));
    if (part.end == static_cast<int64_t>(layers.size())) {
      options.loss = CrossEntropy;
    }
    options.splits_backward = absl::StartsWith(setting.schedule, "zb");
    stages.push_back(std::make_unique<PipelineStage>(
        LayerList(layers.begin() + part.begin, layers.begin() + part.end),
        options));
  }
  return stages;
}

// One microbatch through all stages and back, timed.
absl::Status TimeStages(const Stages& stages, const Batch& batch, double weight,
                        std::vector<StageCost>& sums) {
  const StagePass pass;
  StageMessage values = {batch.inputs};
  for (size_t i = 0; i < stages.size(); ++i) {
    const Usage begin = Usage::Now();
    if (stages[i]->has_loss()) {
      TANDEM_RETURN_IF_ERROR(
          stages[i]->ForwardLoss(pass, values, batch.targets, weight).status());
    } else {
      TANDEM_ASSIGN_OR_RETURN(values, stages[i]->Forward(pass, values));
    }
    sums[i].forward += (Usage::Now() - begin).wall_ms;
  }
  StageMessage gradients;
  for (size_t i = stages.size(); i-- > 0;) {
    const Usage begin = Usage::Now();
    TANDEM_ASSIGN_OR_RETURN(gradients, stages[i]->BackwardInput(0, gradients));
    const Usage middle = Usage::Now();
    TANDEM_RETURN_IF_ERROR(stages[i]->BackwardWeight(0));
    sums[i].backward_input += (middle - begin).wall_ms;
    sums[i].backward_weight += (Usage::Now() - middle).wall_ms;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<PipelineTrainer>> PipelineTrainer::Create(
    const PipelineInputs& inputs, const PipelineSetting& setting,
    const PipelinePlace& place) {
  auto trainer = absl::WrapUnique(new PipelineTrainer(inputs));
  HybridOptions options;
  TANDEM_ASSIGN_OR_RETURN(options.schedule, ScheduleOf(setting, place));
  TANDEM_ASSIGN_OR_RETURN(
      trainer->cuts_,
      CutsForAll(inputs, setting, options.schedule, place.world));
  options.cuts = trainer->cuts_;
  options.devices.assign(place.cores.size(), c10::Device(c10::kCPU));
  options.weight_gradient_batch = setting.together;
  options.reproducible = setting.reproducible;
  options.optimizer = Sgd();
  TANDEM_ASSIGN_OR_RETURN(const LayerSpecs specs, MakeCaseSpecs(inputs.bench));
  TANDEM_ASSIGN_OR_RETURN(
      trainer->strategy_,
      Hybrid::Create(specs, CrossEntropy, options, place.world));
  TANDEM_RETURN_IF_ERROR(trainer->strategy_->LoadModelState(inputs.state));
  TANDEM_RETURN_IF_ERROR(trainer->strategy_->OnDevices([&](int device) {
    return BindToCore(
        place.cores[static_cast<size_t>(device) % place.cores.size()]);
  }));
  return trainer;
}

absl::StatusOr<Score> PipelineTrainer::Step() {
  const Batch& batch = inputs_.batches[next_++ % inputs_.batches.size()];
  return strategy_->TrainStep(batch, inputs_.bench.learning_rate);
}

absl::StatusOr<double> OptimizerMs(const PipelineInputs& inputs,
                                   const PipelineSetting& setting,
                                   const Cuts& cuts,
                                   const std::vector<int>& cores) {
  TANDEM_ASSIGN_OR_RETURN(const Schedule schedule,
                          ScheduleOf(setting, {cores, 1, nullptr}));
  TANDEM_ASSIGN_OR_RETURN(const Stages stages, StagesOf(inputs, setting, cuts));
  std::vector<double> ms(cores.size());
  TANDEM_RETURN_IF_ERROR(OnEachCore(cores, [&](size_t device) {
    NamedTensors parameters;
    for (int stage : schedule.stages_of[device]) {
      for (auto& each : NamedParameters(stages[stage]->layers())) {
        parameters.push_back(std::move(each));
      }
    }
    const FlatBuffers buffers = MakeFlatBuffers(parameters);
    TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<Optimizer> optimizer,
                            MakeOptimizer(Sgd(), buffers));
    constexpr int kTimes = 5;
    // Without gradients it does nothing; the first step makes its state.
    for (const auto& each : buffers) {
      for (size_t i = 0; i < each->slots().size(); ++i) {
        each->set_has_gradient(i, true);
      }
    }
    optimizer->Step(0);
    const Usage before = Usage::Now();
    for (int i = 0; i < kTimes; ++i) optimizer->Step(0);
    ms[device] = (Usage::Now() - before).wall_ms / kTimes;
    return absl::OkStatus();
  }));
  return *std::max_element(ms.begin(), ms.end());
}

absl::StatusOr<std::vector<StageCost>> StageTimes(
    const PipelineInputs& inputs, const PipelineSetting& setting,
    const Cuts& cuts, int64_t count) {
  TANDEM_ASSIGN_OR_RETURN(const Stages stages, StagesOf(inputs, setting, cuts));
  NamedTensors parameters;
  for (const auto& stage : stages) {
    for (auto& each : NamedParameters(stage->layers())) {
      parameters.push_back(std::move(each));
    }
  }
  // Gradients are gathered as in training.
  const FlatBuffers buffers = MakeFlatBuffers(parameters);
  std::vector<StageCost> warmup(stages.size());
  std::vector<StageCost> sums(stages.size(), {0, 0, 0});
  for (int64_t i = -1; i < count; ++i) {
    const Batch& batch = inputs.batches[(i + 1) % inputs.batches.size()];
    TANDEM_ASSIGN_OR_RETURN(const std::vector<Batch> parts,
                            Microbatches(batch, setting.microbatches));
    for (const Batch& each : parts) {
      const double weight =
          static_cast<double>(each.size) / static_cast<double>(batch.size);
      TANDEM_RETURN_IF_ERROR(
          TimeStages(stages, each, weight, i < 0 ? warmup : sums));
    }
    for (const auto& each : buffers) each->ZeroGrad();
  }
  const double times = static_cast<double>(count) * setting.microbatches;
  for (StageCost& each : sums) {
    each.forward /= times;
    each.backward_input /= times;
    each.backward_weight /= times;
  }
  return sums;
}

}  // namespace tandem
