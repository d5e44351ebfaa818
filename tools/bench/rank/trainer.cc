#include "tools/bench/rank/trainer.h"

#include <ATen/ops/tensor.h>

#include <map>
#include <string>
#include <utility>

#include "absl/memory/memory.h"
#include "core/base/status_macros.h"
#include "core/checkpoint/stored_tensors.h"
#include "core/loss/loss.h"
#include "core/model/layer_list.h"
#include "models/classification_loss.h"
#include "models/tensor_parallel_loss.h"
#include "parallel/optim/make_optimizer.h"
#include "parallel/partition/layer_profile.h"
#include "parallel/pipeline/microbatches.h"
#include "parallel/pipeline/model_parallel.h"
#include "parallel/schedule/schedules.h"
#include "parallel/step/step_score.h"
#include "parallel/strategy/mesh_strategy.h"
#include "tools/bench/measure/cores.h"
#include "tools/bench/rank/group.h"

namespace tandem {
namespace {

OptimizerOptions MakeOptimizerOptions(const Workload& workload) {
  if (workload.optimizer == "adamw") return AdamWOptions();
  SgdOptions sgd;
  sgd.momentum = 0.9;
  return sgd;
}

absl::StatusOr<Cuts> CutsFor(const Inputs& inputs, const LayerSpecs& specs,
                             const Setting& setting, const Schedule& schedule) {
  if (setting.cut == "uniform") {
    return UniformCuts(static_cast<int64_t>(specs.size()), schedule.stages);
  }
  TANDEM_ASSIGN_OR_RETURN(const ModelProfile profile,
                          ProfileMicrobatch(MakeLayers(specs, kInputsSeed),
                                            inputs.batches.front(), schedule));
  TANDEM_ASSIGN_OR_RETURN(const SendingCost sending, MeasureSending());
  return CutByProfile(specs, profile, schedule, sending);
}

// What rank 0 has measured is true for all.
absl::StatusOr<Cuts> CutsForAll(const Inputs& inputs, const LayerSpecs& specs,
                                const Setting& setting,
                                const Schedule& schedule, Communicator* world) {
  Cuts cuts(static_cast<size_t>(schedule.stages) - 1);
  if (world == nullptr || world->rank() == 0) {
    TANDEM_ASSIGN_OR_RETURN(cuts, CutsFor(inputs, specs, setting, schedule));
  }
  if (world == nullptr) return cuts;
  const at::Tensor numbers = at::tensor(cuts, at::kLong);
  TANDEM_RETURN_IF_ERROR(world->Broadcast(numbers, /*root=*/0));
  const auto* const values = numbers.const_data_ptr<int64_t>();
  return Cuts(values, values + numbers.numel());
}

}  // namespace

absl::StatusOr<ModelProfile> ProfileMicrobatch(const LayerList& layers,
                                               const Batch& batch,
                                               const Schedule& schedule) {
  TANDEM_ASSIGN_OR_RETURN(
      const std::vector<Batch> parts,
      SplitBatch(batch, EvenSizes(batch.size, schedule.microbatches)));
  ProfileOptions options;
  options.splits_backward = SplitsBackward(schedule);
  options.further_inputs = parts.front().further_inputs;
  options.loss = [&parts](const at::Tensor& output, const Skips&) {
    return CrossEntropy(output, parts.front().targets).loss;
  };
  return ProfileLayers(layers, parts.front().inputs, options);
}

absl::StatusOr<SendingCost> MeasureSending() {
  const c10::Device cpu(c10::kCPU);
  return MeasureCopy(cpu, cpu);
}

absl::StatusOr<Cuts> CutByProfile(const LayerSpecs& specs,
                                  const ModelProfile& profile,
                                  const Schedule& schedule,
                                  const SendingCost& sending) {
  ModelOutline outline;
  for (const LayerSpec& each : specs) {
    outline.names.push_back(each.name);
    outline.types.push_back(each.type);
  }
  outline.parameters = ParameterCounts(specs);
  outline.profile = profile;
  return PartitionModel({BalanceKind::kProfile}, outline, schedule, {sending});
}

absl::StatusOr<Schedule> PlacedSchedule(const Setting& setting,
                                        const RankPlace& place) {
  const int devices = place.pipe * static_cast<int>(place.cores.size());
  return MakeSchedule(setting.schedule,
                      {devices, setting.chunks, setting.microbatches});
}

namespace {

// Whole on each rank, but for layers that ranks share.
absl::StatusOr<MeshStrategyOptions> InOnePiece(const Setting& setting,
                                               const RankPlace& place) {
  MeshStrategyOptions options;
  options.devices = {place.device};
  TANDEM_ASSIGN_OR_RETURN(options.schedule, SequentialSchedule(1, 1));
  options.ddp.find_unused_parameters = setting.recipe == "find_unused";
  options.ddp.static_graph = setting.recipe == "static_graph";  // as peers
  if (SharesLayers(setting.recipe)) {
    options.tensor = place.pipe;
    options.sequence_parallel = setting.recipe == kTensorSequenceRecipe;
  }
  return options;
}

LossFunction LossOf(const Workload& workload, const Setting& setting) {
  if (!SharesLayers(setting.recipe)) return CrossEntropy;
  TensorParallelLossOptions options;
  options.classes = workload.classes;
  return TensorParallelCrossEntropy(options);
}

absl::StatusOr<MeshStrategyOptions> InStages(const Inputs& inputs,
                                             const LayerSpecs& specs,
                                             const Setting& setting,
                                             const RankPlace& place) {
  MeshStrategyOptions options;
  TANDEM_ASSIGN_OR_RETURN(options.schedule, PlacedSchedule(setting, place));
  TANDEM_ASSIGN_OR_RETURN(
      options.cuts,
      CutsForAll(inputs, specs, setting, options.schedule, place.world));
  options.devices.assign(place.cores.size(), c10::Device(c10::kCPU));
  options.weight_gradient_batch = setting.together;
  options.reproducible = setting.reproducible;
  return options;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Trainer>> Trainer::Create(
    const Inputs& inputs, const Setting& setting, const RankPlace& place) {
  auto trainer = absl::WrapUnique(new Trainer(inputs));
  TANDEM_RETURN_IF_ERROR(trainer->Make(setting, place));
  TANDEM_RETURN_IF_ERROR(trainer->strategy_->LoadModelState(inputs.state));
  return trainer;
}

absl::Status Trainer::Make(const Setting& setting, const RankPlace& place) {
  const bool in_stages = setting.recipe.empty();
  on_cpu_ = place.device.is_cpu();
  TANDEM_ASSIGN_OR_RETURN(const LayerSpecs specs, MakeSpecs(inputs_.workload));
  TANDEM_ASSIGN_OR_RETURN(MeshStrategyOptions options,
                          in_stages ? InStages(inputs_, specs, setting, place)
                                    : InOnePiece(setting, place));
  options.optimizer = MakeOptimizerOptions(inputs_.workload);
  options.shard = Sharding::kAuto;
  if (setting.recipe == kFsdpRecipe) {
    options.shard = Sharding::kParameters;
    options.shard_min_num_params = 1;  // each layer by itself, as peers have it
  }
  if (inputs_.workload.dtype == "bf16") {
    options.ddp.mixed_precision.param_dtype = at::kBFloat16;
  }
  cuts_ = options.cuts;
  TANDEM_ASSIGN_OR_RETURN(
      strategy_, MeshStrategy::Create(specs, LossOf(inputs_.workload, setting),
                                      options, place.world));
  if (!in_stages) return absl::OkStatus();
  return strategy_->OnDevices([&place](int device) {
    return BindToCore(
        place.cores[static_cast<size_t>(device) % place.cores.size()]);
  });
}

const Batch& Trainer::NextBatch() {
  return inputs_.batches[next_++ % inputs_.batches.size()];
}

absl::StatusOr<Score> Trainer::Step() {
  return strategy_->TrainStep(NextBatch(), inputs_.workload.learning_rate);
}

absl::Status Trainer::Steps(int64_t count) {
  if (!on_cpu_) return SubmitSteps(count);
  for (int64_t i = 0; i < count; ++i) {
    TANDEM_RETURN_IF_ERROR(Step().status());
  }
  return absl::OkStatus();
}

absl::Status Trainer::SubmitSteps(int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    TANDEM_RETURN_IF_ERROR(
        strategy_->SubmitStep(NextBatch(), inputs_.workload.learning_rate));
  }
  return strategy_->TakeScores().status();
}

absl::StatusOr<std::vector<TraceEvent>> Trainer::TraceStep() {
  Trace::OfProcess().Start();
  const absl::Status done = Step().status();
  std::vector<TraceEvent> events = Trace::OfProcess().Stop();
  TANDEM_RETURN_IF_ERROR(done);
  return events;
}

int64_t Trainer::CountParameters() const {
  int64_t numel = 0;
  for (const auto& each : strategy_->Parameters()) numel += each.second.numel();
  return numel;
}

CommunicationTimes Trainer::MeanCommunication() const {
  std::map<std::string, double> ns;
  for (const auto& [name, value] : strategy_->Measurements()) ns[name] = value;
  const double comm_ms = ns["avg_backward_comm_time"] / 1e6;
  const double both_ms = ns["avg_backward_compute_comm_overlap_time"] / 1e6;
  return {comm_ms, comm_ms - both_ms};
}

}  // namespace tandem
