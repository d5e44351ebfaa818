#include "tools/bench/pipeline_trainer.h"

#include <ATen/core/grad_mode.h>

#include <functional>
#include <future>
#include <map>
#include <string>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/layer_list.h"
#include "core/status_macros.h"
#include "core/torch_status.h"
#include "models/classification_loss.h"
#include "parallel/balance.h"
#include "parallel/make_optimizer.h"
#include "parallel/schedules.h"
#include "tools/bench/bench_inputs.h"
#include "tools/bench/cores.h"
#include "tools/bench/layer_times.h"
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

std::vector<Batch> Microbatches(const Batch& batch, int count) {
  const std::vector<at::Tensor> inputs = batch.inputs.tensor_split(count);
  const std::vector<at::Tensor> targets = batch.targets.tensor_split(count);
  std::vector<Batch> result;
  for (int i = 0; i < count; ++i) {
    result.push_back({inputs[i], targets[i], inputs[i].size(0)});
  }
  return result;
}

absl::StatusOr<Cuts> CutsFor(const PipelineInputs& inputs,
                             const PipelineSetting& setting, int stages) {
  TANDEM_ASSIGN_OR_RETURN(const LayerList layers, LayersOf(inputs));
  const auto count = static_cast<int64_t>(layers.size());
  if (setting.cut == "uniform") return UniformCuts(count, stages);
  const Batch first =
      Microbatches(inputs.batches.front(), setting.microbatches).front();
  return CutsByTime(LayerTimes(layers, first.inputs), stages);
}

// Binds whichever thread computes it, once; changes nothing else.
Layer BindingLayer(int core) {
  Layer layer;
  layer.name = "bind";
  layer.forward = [core](const at::Tensor& input) {
    static thread_local const absl::Status bound = BindToCore(core);
    return input;
  };
  return layer;
}

bool SplitsBackward(const PipelineSetting& setting) {
  return absl::StartsWith(setting.schedule, "zb");
}

std::vector<PipelineStage> StagesOf(const LayerList& layers, const Cuts& cuts,
                                    const Schedule& schedule,
                                    const std::vector<int>& cores,
                                    bool splits_backward) {
  std::vector<PipelineStage> stages;
  for (const LayerRange& part :
       PartsOf(cuts, static_cast<int64_t>(layers.size()))) {
    const int device = DeviceOfStage(schedule, static_cast<int>(stages.size()));
    LayerList its = {BindingLayer(cores[device])};
    its.insert(its.end(), layers.begin() + part.begin,
               layers.begin() + part.end);
    stages.emplace_back(absl::StrCat("stage ", stages.size()), std::move(its),
                        c10::Device(c10::kCPU), splits_backward);
  }
  return stages;
}

// One microbatch through all stages and back, timed.
absl::Status TimeStages(std::vector<PipelineStage>& stages, const Batch& batch,
                        double weight, std::vector<StageCost>& sums) {
  at::Tensor values = batch.inputs;
  for (size_t i = 0; i < stages.size(); ++i) {
    const Usage begin = Usage::Now();
    if (i + 1 == stages.size()) {
      TANDEM_RETURN_IF_ERROR(
          stages[i]
              .ForwardLoss(0, values, batch.targets, weight, CrossEntropy)
              .status());
    } else {
      TANDEM_ASSIGN_OR_RETURN(values, stages[i].Forward(0, values));
    }
    sums[i].forward += (Usage::Now() - begin).wall_ms;
  }
  at::Tensor gradient;
  for (size_t i = stages.size(); i-- > 0;) {
    const Usage begin = Usage::Now();
    TANDEM_ASSIGN_OR_RETURN(gradient, stages[i].BackwardInput(0, gradient));
    const Usage middle = Usage::Now();
    TANDEM_RETURN_IF_ERROR(stages[i].BackwardWeight(0));
    sums[i].backward_input += (middle - begin).wall_ms;
    sums[i].backward_weight += (Usage::Now() - middle).wall_ms;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<PipelineTrainer>> PipelineTrainer::Create(
    const PipelineInputs& inputs, const PipelineSetting& setting,
    const std::vector<int>& cores) {
  auto trainer = absl::WrapUnique(new PipelineTrainer(inputs));
  const auto devices = static_cast<int>(cores.size());
  TANDEM_ASSIGN_OR_RETURN(
      const Schedule schedule,
      MakeSchedule(setting.schedule,
                   {devices, setting.chunks, setting.microbatches}));
  TANDEM_ASSIGN_OR_RETURN(trainer->cuts_,
                          CutsFor(inputs, setting, schedule.stages));
  TANDEM_ASSIGN_OR_RETURN(const LayerList layers, LayersOf(inputs));
  std::vector<PipelineStage> stages = StagesOf(layers, trainer->cuts_, schedule,
                                               cores, SplitsBackward(setting));
  for (int device = 0; device < devices; ++device) {
    LayerList its;
    for (int stage : schedule.stages_of[device]) {
      const LayerList& more = stages[stage].layers();
      its.insert(its.end(), more.begin(), more.end());
    }
    TANDEM_RETURN_IF_ERROR(trainer->AddUpdater(its, cores[device]));
  }
  TANDEM_ASSIGN_OR_RETURN(
      trainer->executor_,
      PipelineExecutor::Create(schedule, std::move(stages), CrossEntropy));
  return trainer;
}

absl::Status PipelineTrainer::AddUpdater(const LayerList& layers, int core) {
  Updater updater;
  updater.buffers = MakeFlatBuffers(NamedParameters(layers));
  SgdOptions sgd;
  sgd.momentum = 0.9;
  TANDEM_ASSIGN_OR_RETURN(updater.optimizer,
                          MakeOptimizer(sgd, updater.buffers));
  updater.place = std::make_unique<Place>(c10::Device(c10::kCPU));
  updaters_.push_back(std::move(updater));
  return updaters_.back().place->Run([core] { return BindToCore(core); });
}

absl::Status PipelineTrainer::OnEachDevice(
    const std::function<void(Updater&)>& work) {
  std::vector<std::future<absl::Status>> running;
  for (Updater& each : updaters_) {
    running.push_back(each.place->Submit([&work, &each] {
      work(each);
      return absl::OkStatus();
    }));
  }
  absl::Status done;
  for (auto& each : running) done.Update(each.get());
  return done;
}

absl::StatusOr<Score> PipelineTrainer::Step() {
  const Batch& batch = inputs_.batches[next_++ % inputs_.batches.size()];
  TANDEM_ASSIGN_OR_RETURN(const Score score,
                          executor_->TrainStep(Microbatches(
                              batch, executor_->schedule().microbatches)));
  TANDEM_RETURN_IF_ERROR(OnEachDevice([this](Updater& updater) {
    updater.optimizer->Step(inputs_.bench.learning_rate);
    for (const auto& each : updater.buffers) each->ZeroGrad();
  }));
  return score;
}

absl::StatusOr<double> PipelineTrainer::OptimizerMs() {
  // With gradients, for without it does nothing.
  TANDEM_RETURN_IF_ERROR(OnEachDevice([](Updater& updater) {
    for (const auto& each : updater.buffers) {
      for (size_t i = 0; i < each->slots().size(); ++i) {
        each->set_has_gradient(i, true);
      }
    }
  }));
  const Usage before = Usage::Now();
  TANDEM_RETURN_IF_ERROR(
      OnEachDevice([](Updater& updater) { updater.optimizer->Step(0); }));
  const double ms = (Usage::Now() - before).wall_ms;
  TANDEM_RETURN_IF_ERROR(OnEachDevice([](Updater& updater) {
    for (const auto& each : updater.buffers) each->ZeroGrad();
  }));
  return ms;
}

absl::StatusOr<std::vector<StageCost>> StageTimes(
    const PipelineInputs& inputs, const PipelineSetting& setting,
    const Cuts& cuts, int core, int64_t count) {
  Schedule schedule;  // all stages on one device
  schedule.stages = static_cast<int>(cuts.size()) + 1;
  schedule.stages_of.resize(1);
  for (int i = 0; i < schedule.stages; ++i) schedule.stages_of[0].push_back(i);
  TANDEM_ASSIGN_OR_RETURN(const LayerList layers, LayersOf(inputs));
  // Gradients are gathered as in training.
  const FlatBuffers buffers = MakeFlatBuffers(NamedParameters(layers));
  std::vector<PipelineStage> stages =
      StagesOf(layers, cuts, schedule, {core}, SplitsBackward(setting));
  std::vector<StageCost> warmup(stages.size());
  std::vector<StageCost> sums(stages.size(), {0, 0, 0});
  for (int64_t i = -1; i < count; ++i) {
    const Batch& batch = inputs.batches[(i + 1) % inputs.batches.size()];
    for (const Batch& each : Microbatches(batch, setting.microbatches)) {
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
