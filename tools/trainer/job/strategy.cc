#include "tools/trainer/job/strategy.h"

#include <cstdint>
#include <utility>

#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/model/layer_list.h"
#include "core/program/long_task.h"
#include "parallel/data_parallel/replicated_layers.h"
#include "parallel/parameter_server.h"
#include "parallel/strategy/mesh_strategy.h"
#include "tools/trainer/job/model.h"
#include "tools/trainer/job/strategy_options.h"
#include "tools/trainer/settings/pipeline_settings.h"

namespace tandem {
namespace {

// Options that a whole replica and a pipeline have in common.
void SetUpdate(const TrainOptions& options, const UpdateOptions& optimizers,
               UpdateOptions* update) {
  *update = optimizers;
  update->clip_norm = options.clip_grad_norm;
  update->clip_norm_type = options.clip_grad_norm_type;
  update->error_if_nonfinite = options.error_if_nonfinite;
  update->clip_value = options.clip_grad_value;
  update->grad_scaler = RequestedGradScaler(options);
}

// `replica` says how one is cut and scheduled; servers update it.
absl::StatusOr<std::unique_ptr<Strategy>> MakeServed(
    const TrainOptions& options, const JobModel& model,
    const MeshStrategyOptions& replica, Communicator& world) {
  ParameterServerOptions served;
  SetUpdate(options, model.optimizers, &served);
  served.servers = ParameterServerCount(options);
  served.max_staleness = options.ddp.max_staleness;
  const auto make =
      [&](int worker) -> absl::StatusOr<std::unique_ptr<Strategy>> {
    MeshStrategyOptions own = replica;
    // What layers draw is each worker's own; initial values are the first's.
    own.seed += static_cast<uint64_t>(worker);
    own.ddp.mixed_precision = RequestedPrecision(options);
    return MeshStrategy::Create(model.layers, model.loss, own, nullptr);
  };
  return MakeParameterServer(make, served, world);
}

// The same model, on one device to whom it is given, with a replica on each of
// the others.
absl::StatusOr<LayerSpecs> ReplicatedModel(
    const TrainOptions& options, const JobModel& model,
    const std::vector<c10::Device>& devices) {
  TANDEM_ASSIGN_OR_RETURN(const LayerList layers,
                          MakeModelLayers(model.layers, options.seed));
  const auto replicated = ReplicateOverDevices(
      layers, [&] { return MakeLayers(model.layers, options.seed); }, devices,
      model.loss.names().outputs);
  TANDEM_RETURN_IF_ERROR(Annotate(
      replicated.status(),
      "--strategy=data_parallel makes the model again for each device"));
  return SpecsFromLayers(*replicated);
}

// Replicas that reduce their gradients.
absl::StatusOr<std::unique_ptr<Strategy>> MakeReplicas(
    const TrainOptions& options, const JobModel& model,
    MeshStrategyOptions mesh, Communicator& world) {
  SetUpdate(options, model.optimizers, &mesh);
  AddReplicas(options, &mesh);
  LayerSpecs layers = model.layers;
  if (IsDataParallel(MakePipelineContext(options))) {
    TANDEM_ASSIGN_OR_RETURN(layers,
                            ReplicatedModel(options, model, mesh.devices));
    mesh.devices = {mesh.devices.front()};
  }
  return MeshStrategy::Create(layers, model.loss, mesh,
                              world.size() == 1 ? nullptr : &world);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Strategy>> MakeStrategy(
    const TrainOptions& options, const JobModel& model,
    const JobPartition& partition, const std::vector<c10::Device>& devices,
    Communicator& world) {
  const LongTask preparing("making the model",
                           LongTask::SpeaksIf(world.rank() == 0));
  MeshStrategyOptions mesh =
      ReplicaStrategyOptions(options, partition.schedule);
  mesh.cuts = partition.cuts;
  mesh.devices = devices;
  return ParameterServerCount(options) > 0
             ? MakeServed(options, model, mesh, world)
             : MakeReplicas(options, model, mesh, world);
}

}  // namespace tandem
