// How a Hybrid comes about.

#include <ATen/ops/zeros.h>

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
#include "parallel/ddp/model_state.h"
#include "parallel/strategy/hybrid_agreement.h"
#include "parallel/strategy/hybrid_strategy.h"
#include "parallel/strategy/trait_checks.h"

namespace tandem {
namespace {

absl::Status CheckOptions(const HybridOptions& options) {
  TANDEM_RETURN_IF_ERROR(CheckUpdateOptions(options));
  if (options.uneven_batches && options.reproducible &&
      options.microbatch_size == 0) {
    return absl::InvalidArgumentError(
        "uneven_batches with reproducible needs a microbatch_size: the same "
        "microbatches in every layout, however many there are");
  }
  if (options.microbatch_size < 0 || options.weight_gradient_batch < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "microbatch_size must be 0 or more and weight_gradient_batch 1 or "
        "more, but ",
        options.microbatch_size, " and ", options.weight_gradient_batch,
        " were given"));
  }
  return absl::OkStatus();
}

// What would let the layout be seen in the result.
absl::Status CheckReproducible(const HybridOptions& options) {
  if (!options.reproducible) return absl::OkStatus();
  const char* culprit = nullptr;
  if (options.weight_gradient_batch > 1) culprit = "weight_gradient_batch > 1";
  if (options.make_hook) culprit = "a communication hook";
  if (options.pipeline.defers_statistics) culprit = "deferred statistics";
  if (culprit == nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("reproducible excludes ", culprit,
                   ": sums would depend on the layout; leave one of them out"));
}

TrainedStageOptions StageOptionsOf(const HybridOptions& options) {
  TrainedStageOptions stage;
  stage.update = options;
  stage.broadcast_buffers = options.broadcast_buffers;
  stage.reducer.buckets = options.buckets;
  stage.reducer.find_unused_parameters = options.find_unused_parameters;
  stage.defers =
      options.weight_gradient_batch > 1 || SplitsBackward(options.schedule);
  return stage;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Hybrid>> Hybrid::Create(
    const LayerSpecs& specs, const LossFunction& loss,
    const HybridOptions& options, Communicator* world) {
  return HybridStrategy::Create(specs, loss, options, world);
}

absl::StatusOr<std::unique_ptr<HybridStrategy>> HybridStrategy::Create(
    const LayerSpecs& specs, const LossFunction& loss,
    const HybridOptions& options, Communicator* world) {
  TANDEM_RETURN_IF_ERROR(CheckOptions(options));
  TANDEM_RETURN_IF_ERROR(CheckReproducible(options));
  auto strategy = absl::WrapUnique(new HybridStrategy(options));
  TANDEM_RETURN_IF_ERROR(
      CatchTorch([&] { return strategy->Prepare(specs, loss, world); }));
  return strategy;
}

absl::Status HybridStrategy::MakeGroups(Communicator* world) {
  const int ranks = world == nullptr ? 1 : world->size();
  const Schedule& schedule = options_.schedule;
  const auto devices = static_cast<int>(options_.devices.size());
  if (devices == 0 || schedule.devices() % devices != 0 ||
      ranks % (schedule.devices() / devices) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("schedule ", schedule.name, " is for ", schedule.devices(),
                     " devices, but there are ", ranks * devices, ": ", ranks,
                     " ranks of ", devices));
  }
  TANDEM_ASSIGN_OR_RETURN(const Mesh mesh,
                          Mesh::Create(ranks, schedule.devices() / devices));
  TANDEM_RETURN_IF_ERROR(CheckTraits(traits_, mesh));
  if (options_.reproducible) {
    TANDEM_RETURN_IF_ERROR(CheckAllAreReduced(traits_, mesh, "reproducible"));
  }
  if (options_.clip_norm > 0) {
    TANDEM_RETURN_IF_ERROR(CheckAllAreReduced(traits_, mesh, "clip_norm"));
  }
  const int place =
      world == nullptr ? 0 : mesh.IndexAlong(kPipeAxis, world->rank());
  std::vector<int> stages;
  for (int i = 0; i < schedule.stages; ++i) {
    if (DeviceOfStage(schedule, i) / devices == place) stages.push_back(i);
  }
  TANDEM_ASSIGN_OR_RETURN(groups_, HybridGroups::Create(world, mesh, stages));
  return absl::OkStatus();
}

absl::StatusOr<PipelineExecutor::Stages> HybridStrategy::MakeOwnStages(
    const LayerSpecs& specs, const LossFunction& loss,
    const PipelineLayout& layout) const {
  PipelineModelOptions model;
  model.cuts = options_.cuts;
  model.seed = options_.seed;
  model.splits_backward = SplitsBackward(options_.schedule);
  model.weight_gradient_batch = options_.weight_gradient_batch;
  model.reproducible = options_.reproducible;
  model.recomputes =
      options_.pipeline.checkpointing != ActivationCheckpointing::kNever;
  return CatchTorchOr([&] {
    return MakeStages(specs, options_.schedule, layout, model, loss);
  });
}

// What one rank cannot make none goes on without. Collective.
absl::Status HybridStrategy::Agree(const absl::Status& mine) {
  Communicator* const world = groups_.world();
  if (world == nullptr) return mine;
  TANDEM_ASSIGN_OR_RETURN(
      const std::vector<std::string> all,
      world->AllGatherString(std::string(mine.message()), [] {
        return "whether all ranks have made their stages";
      }));
  if (!mine.ok()) return mine;
  for (int rank = 0; rank < world->size(); ++rank) {
    const std::string& reason = all[static_cast<size_t>(rank)];
    if (reason.empty()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", world->NameOf(rank), ": ", reason));
  }
  return absl::OkStatus();
}

absl::Status HybridStrategy::CompareReplicas() {
  if (groups_.replicas() == 1) return absl::OkStatus();
  absl::Status differ;
  for (size_t i = 0; i < executor_->stages().size(); ++i) {
    const auto& stage = executor_->stages()[i];
    if (stage == nullptr) continue;
    NamedTensors model = NamedParameters(stage->layers());
    for (auto& each : NamedBuffers(stage->layers())) {
      model.push_back(std::move(each));
    }
    differ.Update(
        Annotate(CheckSameModel(model, *groups_.data(static_cast<int>(i))),
                 stage->name()));
  }
  return Agree(differ);
}

absl::Status HybridStrategy::Prepare(const LayerSpecs& specs,
                                     const LossFunction& loss,
                                     Communicator* world) {
  TANDEM_RETURN_IF_ERROR(CheckSameOptions(specs, loss, options_, world));
  traits_ = NamedTraits(specs);
  TANDEM_RETURN_IF_ERROR(MakeGroups(world));
  const PipelineLayout layout = {options_.devices, groups_.pipe()};
  layers_ = static_cast<int>(specs.size());
  shares_ = std::make_unique<BatchShares>(options_, loss, groups_);
  absl::StatusOr<PipelineExecutor::Stages> stages =
      MakeOwnStages(specs, loss, layout);
  TANDEM_RETURN_IF_ERROR(Agree(stages.status()));
  PipelineOptions pipeline = options_.pipeline;
  pipeline.aligns_inputs = options_.reproducible;
  TANDEM_ASSIGN_OR_RETURN(
      executor_, PipelineExecutor::Create(options_.schedule, *std::move(stages),
                                          layout, pipeline));
  TANDEM_ASSIGN_OR_RETURN(
      const std::vector<TiedGroup> tied,
      TiedAcross(specs, options_.cuts, options_.reproducible));
  TANDEM_RETURN_IF_ERROR(CompareReplicas());
  TANDEM_RETURN_IF_ERROR(MakeTrainedStages(tied));
  TANDEM_RETURN_IF_ERROR(CountParameters());
  TANDEM_ASSIGN_OR_RETURN(
      tied_,
      TiedGradients::Create(
          tied, options_.schedule, layout, AllBuffers(),
          options_.reproducible ? TiedOrder::kByCopy : TiedOrder::kByRank));
  return Agree(tied_->ShareValues());
}

absl::Status HybridStrategy::MakeTrainedStages(
    const std::vector<TiedGroup>& tied) {
  std::map<std::string, std::string> first_of_copy;
  for (const TiedGroup& group : tied) {
    for (size_t i = 1; i < group.size(); ++i) {
      first_of_copy[group[i].name] = group[0].name;
    }
  }
  TrainedStageOptions options = StageOptionsOf(options_);
  options.traits = traits_;
  if (options_.reproducible) {
    TANDEM_ASSIGN_OR_RETURN(options.order, OrderOfGroups());
  }
  for (const auto& stage : executor_->stages()) {
    stages_.push_back(nullptr);
    if (stage == nullptr) continue;
    if (options_.make_hook) {
      TANDEM_ASSIGN_OR_RETURN(options.hook, options_.make_hook());
    }
    TANDEM_ASSIGN_OR_RETURN(
        stages_.back(),
        TrainedStage::Create(
            NamedParameters(stage->layers()), NamedBuffers(stage->layers()),
            first_of_copy, options,
            groups_.data(static_cast<int>(stages_.size()) - 1)));
  }
  return absl::OkStatus();
}

// What other ranks' stages have is known to them.
absl::Status HybridStrategy::CountParameters() {
  const auto stages = static_cast<int64_t>(stages_.size());
  const at::Tensor counts = at::zeros({stages}, at::kLong);
  auto* const count = counts.mutable_data_ptr<int64_t>();
  for (size_t i = 0; i < stages_.size(); ++i) {
    const auto& stage = executor_->stages()[i];
    if (stage == nullptr) continue;
    count[i] = static_cast<int64_t>(NamedParameters(stage->layers()).size());
  }
  if (groups_.pipe() != nullptr) {
    TANDEM_RETURN_IF_ERROR(groups_.pipe()->AllReduceSum(
        counts, [] { return "the numbers of parameters"; }));
  }
  first_parameters_ = {0};
  for (int64_t i = 0; i < stages; ++i) {
    first_parameters_.push_back(first_parameters_.back() + count[i]);
  }
  if (first_parameters_.back() > 0) return absl::OkStatus();
  return absl::InvalidArgumentError("the model has no parameters to train");
}

}  // namespace tandem
