#include "tools/trainer/job/job_strategy.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <regex>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "core/loss/loss.h"
#include "core/model/layer_list.h"
#include "models/classification_loss.h"
#include "models/registry.h"
#include "models/z_loss.h"
#include "parallel/pipeline/model_parallel.h"
#include "parallel/schedule/schedules.h"
#include "parallel/strategy/hybrid.h"
#include "parallel/strategy/replicated.h"
#include "tools/trainer/job/job_partition.h"
#include "tools/trainer/settings/apply_ddp_settings.h"
#include "tools/trainer/settings/pipeline_layout.h"

namespace tandem {
namespace {

// A data set that suits the model, where the given one holds the other kind of
// samples; empty: that would be no remedy.
std::string FittingDataset(const ModelOptions& model) {
  ModelOptions other = model;
  other.tokens = !model.tokens;
  other.input_shape =
      other.tokens ? std::vector<int64_t>{64} : std::vector<int64_t>{1, 28, 28};
  if (!MakeModel(other).ok()) return "";
  return other.tokens ? "synthetic_tokens" : "fashion_mnist";
}

absl::StatusOr<LayerSpecs> MakeSpecs(const TrainOptions& options,
                                     const Dataset& data) {
  ModelOptions model;
  model.name = options.model;
  model.input_shape = data.input_shape();
  model.classes = data.classes();
  model.tokens = data.tokens();
  absl::StatusOr<LayerSpecs> specs = MakeModel(model);
  if (specs.ok()) return specs;
  const std::string fitting = FittingDataset(model);
  if (fitting.empty()) return specs;
  return absl::Status(
      specs.status().code(),
      absl::StrCat(specs.status().message(), ": try --dataset=", fitting));
}

OptimizerOptions OptimizerOptionsOf(const TrainOptions& options,
                                    double weight_decay) {
  if (options.optimizer == "sgd") {
    SgdOptions sgd;
    sgd.momentum = options.momentum;
    sgd.nesterov = options.nesterov;
    sgd.weight_decay = weight_decay;
    return sgd;
  }
  if (options.optimizer == "adam") {
    AdamOptions adam;
    adam.weight_decay = weight_decay;
    adam.amsgrad = options.amsgrad;
    return adam;
  }
  AdamWOptions adamw;
  adamw.weight_decay = weight_decay;
  adamw.amsgrad = options.amsgrad;
  return adamw;
}

// --no_weight_decay_on: a parameter group of its own.
struct DecayGroups {
  std::function<int64_t(const std::string&)> group;  // null: one group
  std::vector<OptimizerOptions> further;
};

DecayGroups ExemptFromDecay(const TrainOptions& options) {
  if (options.no_weight_decay_on.empty()) return DecayGroups();
  const auto exempt = [pattern = std::regex(options.no_weight_decay_on)](
                          const std::string& name) -> int64_t {
    return std::regex_search(name, pattern) ? 1 : 0;
  };
  return {exempt, {OptimizerOptionsOf(options, 0)}};
}

// That the pattern finds a parameter, on some rank: no rank need have them all.
// Collective.
absl::Status CheckExemption(const TrainOptions& options,
                            const Strategy& strategy, Communicator& world) {
  const DecayGroups groups = ExemptFromDecay(options);
  if (!groups.group) return absl::OkStatus();
  std::vector<std::string> names;
  for (const auto& each : strategy.Parameters()) names.push_back(each.first);
  const bool any = std::any_of(names.begin(), names.end(), groups.group);
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> found,
                          world.AllGatherString(any ? "yes" : ""));
  if (std::any_of(found.begin(), found.end(),
                  [](const std::string& text) { return !text.empty(); })) {
    return absl::OkStatus();
  }
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                          world.AllGatherString(absl::StrJoin(names, ", ")));
  // Replicas say the same.
  const std::set<std::string> different(all.begin(), all.end());
  return absl::InvalidArgumentError(
      absl::StrCat("--no_weight_decay_on=", options.no_weight_decay_on,
                   " matches no parameter of --model=", options.model,
                   ", which has ", absl::StrJoin(different, ", ")));
}

ActivationCheckpointing CheckpointingOf(const PipelineSettings& settings) {
  if (settings.checkpoint_activations == "always") {
    return ActivationCheckpointing::kAlways;
  }
  return settings.checkpoint_activations == "except_last"
             ? ActivationCheckpointing::kExceptLast
             : ActivationCheckpointing::kNever;
}

// What a whole replica is trained with, and a pipeline too.
template <typename StrategyOptions>
void SetOptimizer(const TrainOptions& options, const DecayGroups& groups,
                  StrategyOptions* strategy) {
  strategy->optimizer = OptimizerOptionsOf(options, options.weight_decay);
  strategy->further_optimizers = groups.further;
  strategy->clip_norm = options.clip_grad_norm;
  strategy->clip_norm_type = options.clip_grad_norm_type;
  strategy->error_if_nonfinite = options.error_if_nonfinite;
  strategy->clip_value = options.clip_grad_value;
}

LossFunction LossOf(const TrainOptions& options) {
  return options.z_loss > 0 ? WithZLoss(CrossEntropy, options.z_loss)
                            : LossFunction(CrossEntropy);
}

// In a step.
int64_t SamplesOfReplica(const TrainOptions& options, int world_size) {
  return options.batch_size / (world_size / options.pipeline.pipe);
}

absl::StatusOr<Schedule> ScheduleOf(const TrainOptions& options,
                                    int world_size) {
  return ScheduleFor(options.pipeline,
                     options.pipeline.pipe * options.devices.devices_per_rank,
                     SamplesOfReplica(options, world_size));
}

absl::StatusOr<JobStrategy> MakeHybrid(const TrainOptions& options,
                                       const LayerSpecs& specs,
                                       const std::vector<c10::Device>& devices,
                                       const Dataset& data,
                                       Communicator& world) {
  HybridOptions hybrid;
  TANDEM_ASSIGN_OR_RETURN(hybrid.schedule, ScheduleOf(options, world.size()));
  hybrid.pipeline.checkpointing = CheckpointingOf(options.pipeline);
  const PartitionTask task = {
      specs, hybrid.schedule, LossOf(options),
      LargestMicrobatch(SamplesOfReplica(options, world.size()),
                        hybrid.schedule.microbatches,
                        options.pipeline.microbatch_size),
      hybrid.pipeline.checkpointing};
  TANDEM_ASSIGN_OR_RETURN(JobPartition partition,
                          PartitionJob(options, task, devices, data, world));
  hybrid.cuts = partition.cuts;
  hybrid.devices = devices;
  hybrid.microbatch_size = options.pipeline.microbatch_size;
  hybrid.uneven_batches = !options.drop_last;
  hybrid.weight_gradient_batch =
      std::max(1, static_cast<int>(options.pipeline.weight_gradient_batch));
  hybrid.reproducible = options.pipeline.reproducible;
  hybrid.gradient_groups = static_cast<int>(options.pipeline.gradient_groups);
  hybrid.seed = options.seed;
  hybrid.pipeline.defers_statistics = options.pipeline.deferred_batch_norm;
  hybrid.pipeline.timeout =
      std::chrono::milliseconds(static_cast<int64_t>(options.timeout * 1e3));
  hybrid.pipeline.hang_timeout = hybrid.pipeline.timeout;
  const DecayGroups groups = ExemptFromDecay(options);
  SetOptimizer(options, groups, &hybrid);
  Apply(options.ddp, &hybrid);
  hybrid.optimizer_group = groups.group;
  JobStrategy made;
  made.partition = std::move(partition.table);
  TANDEM_ASSIGN_OR_RETURN(made.strategy,
                          Hybrid::Create(specs, LossOf(options), hybrid,
                                         world.size() == 1 ? nullptr : &world));
  return made;
}

// Parts of a model that work one after the other are a pipeline of one
// microbatch.
absl::StatusOr<JobPartition> PartitionReplica(
    const TrainOptions& options, const LayerSpecs& specs,
    const std::vector<c10::Device>& devices, const Dataset& data,
    Communicator& world) {
  TANDEM_ASSIGN_OR_RETURN(
      const Schedule schedule,
      MakeSchedule("gpipe", {static_cast<int>(devices.size()), 1, 1}));
  const PartitionTask task = {
      specs, schedule, LossOf(options),
      LargestMicrobatch(options.batch_size / world.size(),
                        options.ddp.gradient_accumulation_steps, 0)};
  return PartitionJob(options, task, devices, data, world);
}

absl::StatusOr<JobStrategy> MakeReplicated(
    const TrainOptions& options, const LayerSpecs& specs,
    const std::vector<c10::Device>& devices, const Dataset& data,
    Communicator& world) {
  ReplicatedOptions replicated;
  replicated.seed = options.seed;
  TANDEM_RETURN_IF_ERROR(Apply(options.ddp, &replicated));
  const DecayGroups groups = ExemptFromDecay(options);
  SetOptimizer(options, groups, &replicated);
  replicated.ddp.optimizer_group = groups.group;
  LayerList layers = MakeLayers(specs, options.seed);
  JobStrategy made;
  replicated.device = devices.front();
  if (devices.size() > 1) {
    replicated.device = std::nullopt;
    TANDEM_ASSIGN_OR_RETURN(
        JobPartition partition,
        PartitionReplica(options, specs, devices, data, world));
    made.partition = std::move(partition.table);
    TANDEM_ASSIGN_OR_RETURN(
        layers, SpreadOverDevices(std::move(layers), partition.cuts, devices));
  }
  TANDEM_ASSIGN_OR_RETURN(made.strategy,
                          Replicated::Create(std::move(layers), LossOf(options),
                                             replicated, world));
  return made;
}

}  // namespace

absl::StatusOr<JobStrategy> MakeJobStrategy(
    const TrainOptions& options, const std::vector<c10::Device>& devices,
    const Dataset& data, Communicator& world) {
  TANDEM_ASSIGN_OR_RETURN(const LayerSpecs specs, MakeSpecs(options, data));
  const auto make = IsPipeline(options.pipeline, SurroundingsOf(options))
                        ? MakeHybrid
                        : MakeReplicated;
  TANDEM_ASSIGN_OR_RETURN(JobStrategy made,
                          make(options, specs, devices, data, world));
  TANDEM_RETURN_IF_ERROR(CheckExemption(options, *made.strategy, world));
  return made;
}

}  // namespace tandem
