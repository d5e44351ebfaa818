#include "tools/trainer/job/strategy.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <regex>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "core/model/layer_list.h"
#include "core/model/make_layers.h"
#include "parallel/data_parallel/replicated_layers.h"
#include "parallel/parameter_server.h"
#include "parallel/strategy/mesh_strategy.h"
#include "tools/trainer/job/model.h"
#include "tools/trainer/job/optimizer.h"
#include "tools/trainer/settings/apply_ddp_settings.h"
#include "tools/trainer/settings/pipeline_settings.h"

namespace tandem {
namespace {

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

// What a whole replica is trained with, and a pipeline too.
void SetUpdate(const TrainOptions& options, UpdateOptions* update) {
  const DecayGroups groups = ExemptFromDecay(options);
  update->optimizer = OptimizerOptionsOf(options, options.weight_decay);
  update->further_optimizers = groups.further;
  update->optimizer_group = groups.group;
  update->clip_norm = options.clip_grad_norm;
  update->clip_norm_type = options.clip_grad_norm_type;
  update->error_if_nonfinite = options.error_if_nonfinite;
  update->clip_value = options.clip_grad_value;
  update->grad_scaler = GradScalerOf(options);
}

// `replica` says how one is cut and scheduled; servers update it.
absl::StatusOr<std::unique_ptr<Strategy>> MakeServed(
    const TrainOptions& options, const LayerSpecs& layers,
    const MeshStrategyOptions& replica, Communicator& world) {
  ParameterServerOptions served;
  SetUpdate(options, &served);
  served.servers = ServersOf(options);
  served.max_staleness = options.ddp.max_staleness;
  const auto make =
      [&](int worker) -> absl::StatusOr<std::unique_ptr<Strategy>> {
    MeshStrategyOptions its = replica;
    // What layers draw is each worker's own; initial values are the first's.
    its.seed += static_cast<uint64_t>(worker);
    its.ddp.mixed_precision = PrecisionOf(options);
    return MeshStrategy::Create(layers, LossOf(options), its, nullptr);
  };
  return MakeParameterServer(make, served, world);
}

// The same model, on one device to whom it is given, with a replica on each of
// the others.
absl::StatusOr<LayerSpecs> ReplicatedModel(
    const TrainOptions& options, const LayerSpecs& specs,
    const std::vector<c10::Device>& devices) {
  TANDEM_ASSIGN_OR_RETURN(const LayerList layers,
                          MakeModelLayers(specs, options.seed));
  TANDEM_ASSIGN_OR_RETURN(
      const LayerList replicated,
      ReplicateOverDevices(
          layers, [&] { return MakeLayers(specs, options.seed); }, devices,
          LossOf(options).names().outputs));
  return SpecsOf(replicated);
}

// Replicas that reduce their gradients.
absl::StatusOr<std::unique_ptr<Strategy>> MakeReplicas(
    const TrainOptions& options, const LayerSpecs& layers,
    MeshStrategyOptions mesh, Communicator& world) {
  SetUpdate(options, &mesh);
  Apply(options.ddp, &mesh);
  mesh.ddp.mixed_precision = PrecisionOf(options);
  LayerSpecs model = layers;
  if (IsDataParallel(SurroundingsOf(options))) {
    TANDEM_ASSIGN_OR_RETURN(model,
                            ReplicatedModel(options, layers, mesh.devices));
    mesh.devices = {mesh.devices.front()};
  }
  return MeshStrategy::Create(model, LossOf(options), mesh,
                              world.size() == 1 ? nullptr : &world);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Strategy>> MakeStrategy(
    const TrainOptions& options, const LayerSpecs& layers,
    const JobPartition& partition, const std::vector<c10::Device>& devices,
    Communicator& world) {
  MeshStrategyOptions mesh;
  mesh.schedule = partition.schedule;
  mesh.cuts = partition.cuts;
  mesh.devices = devices;
  mesh.microbatch_size = options.pipeline.microbatch_size;
  // Replicas in one piece take the mean of their means.
  mesh.uneven_batches = !options.drop_last &&
                        IsPipeline(options.pipeline, SurroundingsOf(options));
  mesh.weight_gradient_batch =
      std::max(1, static_cast<int>(options.pipeline.weight_gradient_batch));
  mesh.reproducible = options.pipeline.reproducible;
  mesh.cuda_graphs = options.devices.cuda_graphs;
  // The others do a step again that a death breaks off.
  mesh.updates_last = options.replace_replicas > 0;
  mesh.gradient_groups = static_cast<int>(options.pipeline.gradient_groups);
  mesh.seed = options.seed;
  mesh.pipeline.checkpointing = CheckpointingOf(options.pipeline);
  mesh.pipeline.selective = SelectiveOf(options);
  mesh.pipeline.defers_statistics = options.pipeline.deferred_batch_norm;
  mesh.pipeline.timeout =
      std::chrono::milliseconds(static_cast<int64_t>(options.timeout * 1e3));
  mesh.pipeline.hang_timeout = mesh.pipeline.timeout;
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<Strategy> strategy,
                          ServersOf(options) > 0
                              ? MakeServed(options, layers, mesh, world)
                              : MakeReplicas(options, layers, mesh, world));
  TANDEM_RETURN_IF_ERROR(CheckExemption(options, *strategy, world));
  return strategy;
}

}  // namespace tandem
