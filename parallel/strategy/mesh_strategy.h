// Mesh strategy, data x pipe: replicas of a model side by side, each of them
// cut into stages over the devices of one rank, over ranks, or both, and kept
// busy by microbatches. Single device, data parallelism (DDP), model
// parallelism, a pipeline and the hybrid of both are its corners.

#ifndef TANDEM_PARALLEL_STRATEGY_MESH_STRATEGY_H_
#define TANDEM_PARALLEL_STRATEGY_MESH_STRATEGY_H_

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "parallel/step/mesh_strategy_options.h"
#include "parallel/strategy/strategy.h"

namespace tandem {

class Communicator;
class LossFunction;
class PipelineExecutor;
struct LayerSpec;

// The mesh data x pipe of core/mesh/mesh.h: rank = replica * pipe + place along
// the pipeline, and pipe = the schedule's devices / devices.size(). All corners
// run the same code; name() says which one it is. A rank with one device is
// driven by the caller's thread, else each device by one of its own.
//
// Each step is one of the schedule on every replica, on its own part of the
// batch. When a stage's last microbatch has given its gradients they are
// averaged over the stage's replicas, bucket by bucket, while other stages
// still work; accumulation over microbatches averages once. Then the gradients
// of tied weights are summed, gradients clipped, and every device updates its
// own parameters; where nothing is tied across stages or clipped by norm, as
// soon as it has done its part. The result is that of the uncut model over the
// same microbatches, but for the order of sums. After every step a stage's
// parameters, buffers and optimizer state have the same bits on all replicas,
// but for options.averaging and ddp.parameters_to_ignore. The gradients of
// these, each replica's own, have no part in the norm of all: they have a norm
// of their own and the same bound.
//
// All ranks call the same methods; ranks of one replica with the same batch, by
// size, microbatches and Batch::identity as far as it is known, or the step
// fails. A replica's gradient is that of its batch's mean, and replicas take
// the mean of these, unless batches may be uneven or the loss function has a
// weight (core/loss/loss.h): then it is the whole batch's. The first stage's
// rank needs its inputs, further ones included, and the last one's its targets,
// further ones included; others may leave them undefined.
//
// Schedule, cuts, seed and the other options must be the same on all ranks:
// Create compares them (mesh_checks.h). Of a loss it is the names of what it
// takes, of make_hook whether it is set: what they compute, a loss's label
// smoothing, say, is not compared.
// Modules train that are in training mode when the strategy is made; others
// stay in evaluation mode (core/model/training_modes.h). At the start every
// replica takes the first one's parameters and buffers, and every copy of a
// tied weight that of the first layer that has it.
//
// A loss that is NaN or infinite shows in the score; the step is done all the
// same, unless grad_scaler is set: then a step of which some gradient is not
// finite updates no rank's parameters and optimizer state. Where replicas send
// each other nothing (options.averaging) it is the score of this replica's
// share alone.
//
// Errors: InvalidArgument for parts that do not fit each other, replicas with
// different models, two layers of one name, a batch that gives another number
// of microbatches than the schedule's (a sequential one takes fewer), a model
// without parameters, a layer that cannot be made (on all ranks, with the first
// such rank's reason); those of PipelineExecutor, Reducer, Communicator and
// LibTorch. When one rank fails the others fail at once, with its reason; some
// stages may have been updated by then, so that a job goes on from its last
// checkpoint.
//
// Fault points: PipelineExecutor's, the Reducer's, "before_optimizer", and
// "updates_last", before ranks wait for each other's gradients.
class MeshStrategy : public Strategy {
 public:
  // `world` is the communicator of all ranks, null for one; it must outlive the
  // strategy. Collective.
  static absl::StatusOr<std::unique_ptr<MeshStrategy>> Create(
      const std::vector<LayerSpec>& specs, const LossFunction& loss,
      const MeshStrategyOptions& options, Communicator* world);

  // The outputs of the model for `batch`, [batch.size, ...], on the last
  // stage's device; undefined where that is not here. In evaluation mode. They
  // are the last layer's; what the loss takes beside them is not given.
  virtual absl::StatusOr<at::Tensor> Forward(const Batch& batch) = 0;

  // Instead of options.uneven_division, from the next step on; the same on
  // every rank. FailedPrecondition where batches may not be uneven,
  // InvalidArgument with `reproducible`.
  virtual absl::Status SetUnevenDivision(UnevenDivision division) = 0;
  virtual UnevenDivision uneven_division() const = 0;

  virtual const PipelineExecutor& executor() const = 0;
  // On the threads of this rank's devices, between steps: to bind them to
  // cores, say.
  virtual absl::Status OnDevices(
      const std::function<absl::Status(int schedule_device)>& work) = 0;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_STRATEGY_MESH_STRATEGY_H_
