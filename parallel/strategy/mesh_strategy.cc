#include "parallel/strategy/mesh_strategy.h"

#include <ATen/ops/zeros.h>
#include <glog/logging.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/comm/communicator.h"
#include "core/loss/loss.h"
#include "core/mesh/mesh.h"
#include "core/model/axis/tensor_parallel.h"
#include "core/model/layer.h"
#include "core/model/layer_list.h"
#include "core/model/low_precision_reads.h"
#include "core/model/training_modes.h"
#include "parallel/comm_hooks/compression_hooks.h"
#include "parallel/ddp/option_checks.h"
#include "parallel/optim/update_options.h"
#include "parallel/pipeline/model.h"
#include "parallel/schedule/unshards.h"
#include "parallel/schedule/validator.h"
#include "parallel/step/mesh_model.h"
#include "parallel/step/ordered_sums.h"
#include "parallel/step/parts/step_parts.h"
#include "parallel/strategy/mesh_checks.h"
#include "parallel/strategy/mesh_training.h"
#include "parallel/strategy/stage/trained_stage.h"
#include "parallel/tensor_parallel/axis_communicator.h"

namespace tandem {
namespace {

TrainedStageOptions MakeStageOptions(const MeshStrategyOptions& options) {
  TrainedStageOptions stage;
  stage.update = options;
  stage.ddp = options.ddp;
  stage.sharding = options.shard;
  stage.sharding_excluded_by = ExcludesSharding(options);
  stage.defers =
      options.weight_gradient_batch > 1 || SplitsBackward(options.schedule);
  return stage;
}

// The optimizer's group of a tied weight is that of all its names, wherever
// they are.
absl::Status GoByAllNames(const LayerSpecs& specs,
                          MeshStrategyOptions* options) {
  TANDEM_ASSIGN_OR_RETURN(
      const std::vector<TiedGroup> tied,
      TiedAcross(specs, options->cuts, /*copies_ties=*/true));
  std::map<std::string, std::vector<std::string>> names;
  for (const TiedGroup& group : tied) {
    std::vector<std::string> all;
    for (const StageParameter& each : group) all.push_back(each.name);
    for (const std::string& each : all) names[each] = all;
  }
  options->optimizer_group =
      GroupOfAny(options->optimizer_group, std::move(names));
  return absl::OkStatus();
}

// With whom this rank's stages are divided, by stage.
using Divisions = std::map<int, std::shared_ptr<const TensorParallel>>;

absl::StatusOr<Divisions> MakeDivisions(MeshModel& model) {
  Divisions divisions;
  const MeshStrategyOptions& options = model.options;
  if (model.mesh.degree(kTensorAxis) == 1) return divisions;
  for (int i = 0; i < options.schedule.stages; ++i) {
    if (!model.groups.holds(i)) continue;
    TANDEM_ASSIGN_OR_RETURN(Communicator* const group,
                            model.groups.MakeParts(i, "parts of layers"));
    auto parallel = std::make_shared<TensorParallel>();
    parallel->group = MakeAxisGroup(std::string(kTensorAxis), *group);
    parallel->sequence_parallel = options.sequence_parallel;
    divisions[i] = std::move(parallel);
  }
  return divisions;
}

// This rank's.
absl::StatusOr<PipelineExecutor::Stages> MakeOwnStages(
    const LayerSpecs& specs, const LossFunction& loss,
    const MeshStrategyOptions& options, const PipelineLayout& layout,
    const Divisions& divisions, bool leaves_trained) {
  PipelineModelOptions model;
  model.cuts = options.cuts;
  model.seed = options.seed;
  model.splits_backward = SplitsBackward(options.schedule);
  model.weight_gradient_batch = options.weight_gradient_batch;
  model.reproducible = options.reproducible;
  model.param_dtype = options.ddp.mixed_precision.param_dtype;
  model.buffer_dtype = options.ddp.mixed_precision.buffer_dtype;
  model.recomputes =
      options.pipeline.checkpointing != ActivationCheckpointing::kNever;
  model.selective = options.pipeline.selective;
  model.leaves_trained = leaves_trained;
  model.tensor_parallel = [&divisions](int stage) {
    const auto found = divisions.find(stage);
    return found == divisions.end() ? nullptr : found->second;
  };
  TANDEM_ASSIGN_OR_RETURN(PipelineExecutor::Stages stages, CatchTorchOr([&] {
                            return MakeStages(specs, options.schedule, layout,
                                              model, loss);
                          }));
  TANDEM_RETURN_IF_ERROR(CheckAreLeaves(NamedParameters(stages)));
  return stages;
}

// Replicas that share more than the optimizer have an axis of their own.
MeshDegrees DegreesOf(const MeshStrategyOptions& options, int pipe, int ranks) {
  MeshDegrees degrees;
  degrees.pipe = pipe;
  degrees.tensor = options.tensor;
  degrees.shard = ShardDegree(options.shard, options.data_shard,
                              std::max(1, ranks / (pipe * options.tensor)));
  return degrees;
}

absl::Status MakeGroups(Communicator* world, MeshModel& model) {
  const int ranks = world == nullptr ? 1 : world->size();
  const Schedule& schedule = model.options.schedule;
  const auto devices = static_cast<int>(model.options.devices.size());
  if (devices == 0 || schedule.devices() % devices != 0 ||
      ranks % (schedule.devices() / devices) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("schedule ", schedule.name, " is for ", schedule.devices(),
                     " devices, but there are ", ranks * devices, ": ", ranks,
                     " ranks of ", devices));
  }
  TANDEM_ASSIGN_OR_RETURN(
      model.mesh,
      Mesh::Create(ranks, DegreesOf(model.options, schedule.devices() / devices,
                                    ranks)));
  const Mesh& mesh = model.mesh;
  TANDEM_RETURN_IF_ERROR(CheckTraits(model.traits, mesh));
  if (model.options.reproducible) {
    TANDEM_RETURN_IF_ERROR(
        CheckAllAreReduced(model.traits, mesh, "reproducible"));
  }
  const int place =
      world == nullptr ? 0 : mesh.IndexAlong(kPipeAxis, world->rank());
  std::map<int, c10::Device> stages;
  for (int i = 0; i < schedule.stages; ++i) {
    const int device = DeviceOfStage(schedule, i);
    if (device / devices != place) continue;
    stages.emplace(
        i, model.options.devices[static_cast<size_t>(device % devices)]);
  }
  TANDEM_ASSIGN_OR_RETURN(model.groups,
                          MeshGroups::Create(world, mesh, stages));
  return absl::OkStatus();
}

absl::Status MakeExecutor(const LayerSpecs& specs, const LossFunction& loss,
                          const Communicator* world, MeshModel& model) {
  const MeshStrategyOptions& options = model.options;
  const PipelineLayout layout = {options.devices, model.groups.pipe()};
  TANDEM_ASSIGN_OR_RETURN(const Divisions divisions, MakeDivisions(model));
  absl::StatusOr<PipelineExecutor::Stages> stages =
      MakeOwnStages(specs, loss, options, layout, divisions,
                    model.groups.mesh().degree(kShardAxis) > 1 &&
                        ShardsGradients(options.shard));
  TANDEM_RETURN_IF_ERROR(model.Agree(stages.status()));
  PipelineOptions pipeline = options.pipeline;
  pipeline.settles_inputs = options.reproducible;
  // What is computed on streams, and layers with collectives, may wait for
  // another rank there: that has a timeout of its own, and a better message.
  const bool layers_wait = options.tensor > 1 || options.sync_batch_norm ||
                           options.shard == Sharding::kParameters;
  if (world != nullptr &&
      (layers_wait ||
       world->backend_names().HasStreams(options.devices.front().type()))) {
    pipeline.hang_timeout *= 2;
  }
  const bool stay =
      options.shard == Sharding::kParameters && !options.reshard_after_forward;
  TANDEM_ASSIGN_OR_RETURN(
      model.executor,
      PipelineExecutor::Create(
          stay ? WithUnshards(options.schedule, pipeline.max_unsharded_stages)
               : options.schedule,
          *std::move(stages), layout, pipeline));
  // What their places come to is known with the layers.
  for (const auto& stage : model.executor->stages()) {
    if (stage == nullptr) continue;
    for (const auto& [name, traits] : NamedTraits(stage->layers())) {
      model.traits[name] = traits;
      if (absl::c_linear_search(options.ddp.parameters_to_ignore, name)) {
        model.traits[name].reduce_axes.clear();
      }
    }
  }
  return CheckTraits(model.traits, model.mesh);
}

// Copies of a tied weight go by the traits of its first name, which may be that
// of another rank's layer.
void ShareTraits(const std::vector<TiedGroup>& tied, TraitsByName& traits) {
  for (const TiedGroup& group : tied) {
    const auto known = absl::c_find_if(
        group, [&](const auto& each) { return traits.count(each.name) > 0; });
    if (known == group.end()) continue;
    const ParameterTraits shared = traits.at(known->name);
    for (const StageParameter& each : group) traits.emplace(each.name, shared);
  }
}

void NoteModes(MeshModel& model) {
  for (const auto& stage : model.executor->stages()) {
    if (stage != nullptr) model.modes.emplace_back(stage->layers());
  }
  LOG_IF(WARNING, std::all_of(model.modes.begin(), model.modes.end(),
                              [](const TrainingModes& each) {
                                return each.NoneTrains();
                              }) &&
                      !model.modes.empty())
      << "all modules of this rank are in evaluation mode, and stay in it "
         "while "
         "they are trained: dropout does nothing, and BatchNorm normalises by "
         "the statistics that it has; call train() on the model before the "
         "strategy is made";
}

// What the stage's replicas share, and in which groups.
absl::Status ShareStage(const PipelineStage& stage, int index, MeshModel& model,
                        TrainedStageOptions& trained) {
  const MeshStrategyOptions& options = model.options;
  if (model.groups.mesh().degree(kShardAxis) == 1) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(const MeshGroups::Shards groups,
                          model.groups.MakeShards(index));
  trained.sharers = groups.reduces;
  if (!ShardsGradients(options.shard)) return absl::OkStatus();
  StageShards& shards = trained.shards.emplace();
  shards.groups = {groups.gathers, groups.reduces, groups.copies,
                   model.groups.replicas()};
  shards.units = MakeLayerUnits(stage.layers(), options.shard_min_num_params);
  shards.device = stage.device();
  shards.options.shards_values = options.shard == Sharding::kParameters;
  // Summed in the order of microbatches they are whole on each rank.
  shards.options.shards_gradients = !options.reproducible;
  shards.options.reduces_each = options.schedule.stages == 1;
  shards.options.defers = trained.defers;
  shards.options.find_unused_parameters = options.ddp.find_unused_parameters;
  shards.options.param_dtype = options.ddp.mixed_precision.param_dtype;
  if (!shards.options.shards_values || !shards.options.param_dtype) {
    return absl::OkStatus();
  }
  for (const std::string& name : LowPrecisionParameters(stage.layers())) {
    trained.traits[name].gathers_low_precision = true;
  }
  return absl::OkStatus();
}

absl::Status MakeTrainedStages(MeshModel& model) {
  std::map<std::string, std::string> first_of_copy;
  for (const TiedGroup& group : model.tied) {
    for (size_t i = 1; i < group.size(); ++i) {
      first_of_copy[group[i].name] = group[0].name;
    }
  }
  TrainedStageOptions options = MakeStageOptions(model.options);
  const auto rename = [&](std::string* name) {
    const auto found = first_of_copy.find(*name);
    if (found != first_of_copy.end()) *name = found->second;
  };
  for (std::string& each : options.ddp.parameters_to_ignore) rename(&each);
  options.traits = model.traits;
  if (model.options.reproducible) {
    TANDEM_ASSIGN_OR_RETURN(
        options.order,
        MakeGradientOrder(model.options, model.groups.replicas()));
  }
  for (const auto& stage : model.executor->stages()) {
    model.stages.push_back(nullptr);
    if (stage == nullptr) continue;
    if (model.options.make_hook) {
      TANDEM_ASSIGN_OR_RETURN(options.hook, model.options.make_hook());
    } else if (model.options.ddp.mixed_precision.reduce_dtype) {
      options.hook =
          CompressHook(*model.options.ddp.mixed_precision.reduce_dtype);
    }
    const auto index = static_cast<int>(model.stages.size()) - 1;
    if (model.groups.parts() != nullptr) {
      TANDEM_ASSIGN_OR_RETURN(
          options.parts, model.groups.MakeParts(index, "parts of gradients"));
    }
    TANDEM_RETURN_IF_ERROR(ShareStage(*stage, index, model, options));
    options.alike_group = [&model, index](const ParameterTraits& traits) {
      return model.groups.alike(index, traits);
    };
    TANDEM_ASSIGN_OR_RETURN(
        model.stages.back(),
        TrainedStage::Create(NamedParameters(stage->layers()),
                             NamedBuffers(stage->layers()), first_of_copy,
                             options, model.groups.data(index)));
    stage->set_layer_parameters(model.stages.back()->fully_sharded());
  }
  return absl::OkStatus();
}

// Each rank knows what its own stages have.
absl::Status CountParameters(MeshModel& model) {
  const auto stages = static_cast<int64_t>(model.stages.size());
  // By stage, and behind them how many tensor parallelism divides.
  const at::Tensor counts = at::zeros({stages + 1}, at::kLong);
  auto* const count = counts.mutable_data_ptr<int64_t>();
  for (size_t i = 0; i < model.stages.size(); ++i) {
    const auto& stage = model.executor->stages()[i];
    if (stage == nullptr) continue;
    for (const auto& [name, parameter] : NamedParameters(stage->layers())) {
      ++count[i];
      const auto& shard = EffectiveTraits(model.traits, name).shard;
      count[stages] += shard && shard->axis == kTensorAxis ? 1 : 0;
    }
  }
  if (model.groups.pipe() != nullptr) {
    TANDEM_RETURN_IF_ERROR(model.groups.pipe()->AllReduceSum(
        counts, [] { return "the numbers of parameters"; }));
  }
  model.first_parameters = {0};
  for (int64_t i = 0; i < stages; ++i) {
    model.first_parameters.push_back(model.first_parameters.back() + count[i]);
  }
  if (model.first_parameters.back() == 0) {
    return absl::InvalidArgumentError("the model has no parameters to train");
  }
  const int ranks = model.mesh.degree(kTensorAxis);
  if (ranks == 1 || count[stages] > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "tensor parallelism over ", ranks,
      " ranks divides no parameter of the model, so that each rank would "
      "compute all of it: give these ranks other samples, or derive modules "
      "from TensorParallelModule (core/model/axis/tensor_parallel.h)"));
}

// Member by member, and parts where each can be made.
absl::StatusOr<std::unique_ptr<MeshStrategy>> MakeTraining(
    const LayerSpecs& specs, const LossFunction& loss,
    const MeshStrategyOptions& options, Communicator* world) {
  auto model = std::make_unique<MeshModel>(options);
  TANDEM_RETURN_IF_ERROR(CheckSameOptions(specs, loss, options, world));
  model->traits = NamedTraits(specs);
  for (const std::string& name : options.ddp.parameters_to_ignore) {
    model->traits[name].reduce_axes.clear();
  }
  model->layers = static_cast<int>(specs.size());
  TANDEM_RETURN_IF_ERROR(MakeGroups(world, *model));
  TANDEM_ASSIGN_OR_RETURN(StepPartList parts, MakeStepParts(*model));
  model->shares =
      std::make_unique<BatchShares>(model->options, loss, model->groups);
  TANDEM_RETURN_IF_ERROR(MakeExecutor(specs, loss, world, *model));
  TANDEM_ASSIGN_OR_RETURN(
      model->tied, TiedAcross(specs, options.cuts, options.reproducible));
  ShareTraits(model->tied, model->traits);
  TANDEM_RETURN_IF_ERROR(GoByAllNames(specs, &model->options));
  TANDEM_RETURN_IF_ERROR(model->Agree(CheckNames(*model)));
  TANDEM_RETURN_IF_ERROR(CheckOptimizerGroups(*model));
  TANDEM_RETURN_IF_ERROR(CompareReplicas(*model));
  for (const auto& part : parts) TANDEM_RETURN_IF_ERROR(part->ChangeLayers());
  NoteModes(*model);
  TANDEM_RETURN_IF_ERROR(MakeTrainedStages(*model));
  TANDEM_RETURN_IF_ERROR(CountParameters(*model));
  for (const auto& part : parts) TANDEM_RETURN_IF_ERROR(part->Start());
  return std::make_unique<MeshTraining>(std::move(model), std::move(parts));
}

}  // namespace

absl::StatusOr<std::unique_ptr<MeshStrategy>> MeshStrategy::Create(
    const LayerSpecs& specs, const LossFunction& loss,
    const MeshStrategyOptions& options, Communicator* world) {
  TANDEM_RETURN_IF_ERROR(CheckMeshOptions(options));
  // The executor has the same bounds.
  TANDEM_RETURN_IF_ERROR(
      ValidateSchedule(options.schedule, {options.schedule.microbatches, 0})
          .status());
  if (specs.empty()) {
    return absl::InvalidArgumentError(
        "the model has no layers: nothing to train");
  }
  return CatchTorchOr(
      [&] { return MakeTraining(specs, loss, options, world); });
}

}  // namespace tandem
