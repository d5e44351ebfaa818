// How a MeshStrategy comes about.

#include <ATen/ops/zeros.h>
#include <glog/logging.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/mesh/mesh.h"
#include "core/model/layer_list.h"
#include "core/model/training_modes.h"
#include "parallel/comm_hooks/compression_hooks.h"
#include "parallel/ddp/model_state.h"
#include "parallel/ddp/option_checks.h"
#include "parallel/optim/group_of_names.h"
#include "parallel/pipeline/model.h"
#include "parallel/schedule/validator.h"
#include "parallel/step/ordered_sums.h"
#include "parallel/step/parts/step_parts.h"
#include "parallel/strategy/mesh_agreement.h"
#include "parallel/strategy/mesh_strategy_impl.h"
#include "parallel/strategy/stage/trait_checks.h"

namespace tandem {
namespace {

TrainedStageOptions StageOptionsOf(const MeshStrategyOptions& options) {
  TrainedStageOptions stage;
  stage.update = options;
  stage.ddp = options.ddp;
  stage.sharding = options.shard_optimizer;
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

// This rank's.
absl::StatusOr<PipelineExecutor::Stages> MakeOwnStages(
    const LayerSpecs& specs, const LossFunction& loss,
    const MeshStrategyOptions& options, const PipelineLayout& layout) {
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
  TANDEM_ASSIGN_OR_RETURN(PipelineExecutor::Stages stages, CatchTorchOr([&] {
                            return MakeStages(specs, options.schedule, layout,
                                              model, loss);
                          }));
  TANDEM_RETURN_IF_ERROR(CheckAreLeaves(NamedParameters(stages)));
  return stages;
}

}  // namespace

absl::StatusOr<std::unique_ptr<MeshStrategy>> MeshStrategy::Create(
    const LayerSpecs& specs, const LossFunction& loss,
    const MeshStrategyOptions& options, Communicator* world) {
  return MeshStrategyImpl::Create(specs, loss, options, world);
}

absl::StatusOr<std::unique_ptr<MeshStrategyImpl>> MeshStrategyImpl::Create(
    const LayerSpecs& specs, const LossFunction& loss,
    const MeshStrategyOptions& options, Communicator* world) {
  TANDEM_RETURN_IF_ERROR(CheckMeshOptions(options));
  // As the executor has it.
  TANDEM_RETURN_IF_ERROR(
      ValidateSchedule(options.schedule, {options.schedule.microbatches, 0})
          .status());
  if (specs.empty()) {
    return absl::InvalidArgumentError(
        "the model has no layers: nothing to train");
  }
  auto strategy = absl::WrapUnique(new MeshStrategyImpl(options));
  TANDEM_RETURN_IF_ERROR(
      CatchTorch([&] { return strategy->Prepare(specs, loss, world); }));
  return strategy;
}

absl::Status MeshStrategyImpl::MakeGroups(Communicator* world) {
  const int ranks = world == nullptr ? 1 : world->size();
  const Schedule& schedule = model_->options.schedule;
  const auto devices = static_cast<int>(model_->options.devices.size());
  if (devices == 0 || schedule.devices() % devices != 0 ||
      ranks % (schedule.devices() / devices) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("schedule ", schedule.name, " is for ", schedule.devices(),
                     " devices, but there are ", ranks * devices, ": ", ranks,
                     " ranks of ", devices));
  }
  TANDEM_ASSIGN_OR_RETURN(const Mesh mesh,
                          Mesh::Create(ranks, schedule.devices() / devices));
  TANDEM_RETURN_IF_ERROR(CheckTraits(model_->traits, mesh));
  if (model_->options.reproducible) {
    TANDEM_RETURN_IF_ERROR(
        CheckAllAreReduced(model_->traits, mesh, "reproducible"));
  }
  const int place =
      world == nullptr ? 0 : mesh.IndexAlong(kPipeAxis, world->rank());
  std::map<int, c10::Device> stages;
  for (int i = 0; i < schedule.stages; ++i) {
    const int device = DeviceOfStage(schedule, i);
    if (device / devices != place) continue;
    stages.emplace(
        i, model_->options.devices[static_cast<size_t>(device % devices)]);
  }
  TANDEM_ASSIGN_OR_RETURN(model_->groups,
                          MeshGroups::Create(world, mesh, stages));
  return absl::OkStatus();
}

absl::Status MeshStrategyImpl::Prepare(const LayerSpecs& specs,
                                       const LossFunction& loss,
                                       Communicator* world) {
  TANDEM_RETURN_IF_ERROR(CheckSameOptions(specs, loss, model_->options, world));
  model_->traits = NamedTraits(specs);
  for (const std::string& name : model_->options.ddp.parameters_to_ignore) {
    model_->traits[name].reduce_axes.clear();
  }
  TANDEM_RETURN_IF_ERROR(MakeGroups(world));
  const PipelineLayout layout = {model_->options.devices,
                                 model_->groups.pipe()};
  model_->layers = static_cast<int>(specs.size());
  TANDEM_ASSIGN_OR_RETURN(parts_, MakeStepParts(*model_));
  model_->shares =
      std::make_unique<BatchShares>(model_->options, loss, model_->groups);
  absl::StatusOr<PipelineExecutor::Stages> stages =
      MakeOwnStages(specs, loss, model_->options, layout);
  TANDEM_RETURN_IF_ERROR(model_->Agree(stages.status()));
  PipelineOptions pipeline = model_->options.pipeline;
  pipeline.settles_inputs = model_->options.reproducible;
  // What is computed on streams may wait for another rank there: that has a
  // timeout of its own, and a better message.
  if (world != nullptr &&
      world->HasStreams(model_->options.devices.front().type())) {
    pipeline.hang_timeout *= 2;
  }
  TANDEM_ASSIGN_OR_RETURN(
      model_->executor,
      PipelineExecutor::Create(model_->options.schedule, *std::move(stages),
                               layout, pipeline));
  TANDEM_ASSIGN_OR_RETURN(
      model_->tied,
      TiedAcross(specs, model_->options.cuts, model_->options.reproducible));
  TANDEM_RETURN_IF_ERROR(GoByAllNames(specs, &model_->options));
  TANDEM_RETURN_IF_ERROR(model_->Agree(CheckNames()));
  TANDEM_RETURN_IF_ERROR(CheckGroups());
  TANDEM_RETURN_IF_ERROR(CompareReplicas());
  for (const auto& part : parts_) TANDEM_RETURN_IF_ERROR(part->ChangeLayers());
  for (const auto& stage : model_->executor->stages()) {
    if (stage != nullptr) model_->modes.emplace_back(stage->layers());
  }
  LOG_IF(WARNING, std::all_of(model_->modes.begin(), model_->modes.end(),
                              [](const TrainingModes& each) {
                                return each.NoneTrains();
                              }) &&
                      !model_->modes.empty())
      << "all modules of this rank are in evaluation mode, and stay in it "
         "while "
         "they are trained: dropout does nothing, and BatchNorm normalises by "
         "the statistics that it has; call train() on the model before the "
         "strategy is made";
  TANDEM_RETURN_IF_ERROR(MakeTrainedStages());
  TANDEM_RETURN_IF_ERROR(CountParameters());
  for (const auto& part : parts_) TANDEM_RETURN_IF_ERROR(part->Start());
  return absl::OkStatus();
}

absl::Status MeshStrategyImpl::MakeTrainedStages() {
  std::map<std::string, std::string> first_of_copy;
  for (const TiedGroup& group : model_->tied) {
    for (size_t i = 1; i < group.size(); ++i) {
      first_of_copy[group[i].name] = group[0].name;
    }
  }
  TrainedStageOptions options = StageOptionsOf(model_->options);
  const auto rename = [&](std::string* name) {
    const auto found = first_of_copy.find(*name);
    if (found != first_of_copy.end()) *name = found->second;
  };
  for (std::string& each : options.ddp.parameters_to_ignore) rename(&each);
  options.traits = model_->traits;
  if (model_->options.reproducible) {
    TANDEM_ASSIGN_OR_RETURN(
        options.order,
        GradientOrderOf(model_->options, model_->groups.replicas()));
  }
  for (const auto& stage : model_->executor->stages()) {
    model_->stages.push_back(nullptr);
    if (stage == nullptr) continue;
    if (model_->options.make_hook) {
      TANDEM_ASSIGN_OR_RETURN(options.hook, model_->options.make_hook());
    } else if (model_->options.ddp.mixed_precision.reduce_dtype) {
      options.hook =
          CompressHook(*model_->options.ddp.mixed_precision.reduce_dtype);
    }
    TANDEM_ASSIGN_OR_RETURN(
        model_->stages.back(),
        TrainedStage::Create(
            NamedParameters(stage->layers()), NamedBuffers(stage->layers()),
            first_of_copy, options,
            model_->groups.data(static_cast<int>(model_->stages.size()) - 1)));
  }
  return absl::OkStatus();
}

// What other ranks' stages have is known to them.
absl::Status MeshStrategyImpl::CountParameters() {
  const auto stages = static_cast<int64_t>(model_->stages.size());
  const at::Tensor counts = at::zeros({stages}, at::kLong);
  auto* const count = counts.mutable_data_ptr<int64_t>();
  for (size_t i = 0; i < model_->stages.size(); ++i) {
    const auto& stage = model_->executor->stages()[i];
    if (stage == nullptr) continue;
    count[i] = static_cast<int64_t>(NamedParameters(stage->layers()).size());
  }
  if (model_->groups.pipe() != nullptr) {
    TANDEM_RETURN_IF_ERROR(model_->groups.pipe()->AllReduceSum(
        counts, [] { return "the numbers of parameters"; }));
  }
  model_->first_parameters = {0};
  for (int64_t i = 0; i < stages; ++i) {
    model_->first_parameters.push_back(model_->first_parameters.back() +
                                       count[i]);
  }
  if (model_->first_parameters.back() > 0) return absl::OkStatus();
  return absl::InvalidArgumentError("the model has no parameters to train");
}

}  // namespace tandem
