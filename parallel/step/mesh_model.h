// Mesh model: what a rank has of a model on a mesh, the groups of ranks that it
// is in and its stages, as they are computed and as they are trained.

#ifndef TANDEM_PARALLEL_STEP_MESH_MODEL_H_
#define TANDEM_PARALLEL_STEP_MESH_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/loss/loss.h"
#include "core/mesh/mesh.h"
#include "core/model/batch.h"
#include "core/model/parameter_traits.h"
#include "core/model/training_modes.h"
#include "parallel/pipeline/executor.h"
#include "parallel/pipeline/model.h"
#include "parallel/step/mesh_groups.h"
#include "parallel/step/mesh_strategy_options.h"
#include "parallel/strategy/stage/trained_stage.h"

namespace tandem {

// Shares of a global batch: which samples a step has, which of them are this
// replica's, and what each microbatch weighs; of one step after the other. Not
// thread-safe.
class BatchShares {
 public:
  // What it is given must outlive it, but for the loss.
  BatchShares(const MeshStrategyOptions& options, LossFunction loss,
              const MeshGroups& groups)
      : options_(options),
        loss_(std::move(loss)),
        groups_(groups),
        division_(options.uneven_division) {}

  // Begins a step, with a batch of so many samples here. Collective where
  // batches may be uneven. InvalidArgument where the replicas' sizes do not
  // make a step. `apart`: replicas train each on its own in this step, and send
  // each other nothing.
  absl::Status ExchangeSizes(int64_t size, bool apart = false);

  // The batch in microbatches of this step. InvalidArgument where their number
  // or sizes are not what schedule and options ask for.
  absl::StatusOr<std::vector<Batch>> Microbatches(const Batch& batch) const;

  // Where they stand in the global batch of step number `step`. Collective over
  // the last stage's replicas where the loss has a weight.
  absl::StatusOr<StepSamples> SamplesOfStep(
      const std::vector<Batch>& microbatches, int64_t step) const;

  // From the next step on.
  void set_division(UnevenDivision division) { division_ = division; }
  // See Strategy::SetMeanWeight.
  void set_mean_weight(
      std::function<absl::StatusOr<double>(double mine)> mean) {
    mean_weight_ = std::move(mean);
  }

  // How many of them a replica has in this step.
  int64_t ReplicaMicrobatches(int replica) const;
  // The greatest number that a replica has in this step.
  int64_t MostMicrobatches() const;
  // Whether another one has fewer.
  bool SomeHaveFewer() const;

 private:
  absl::StatusOr<std::vector<double>> LossParts(
      const std::vector<Batch>& microbatches) const;
  double SamplesDividedBy() const;
  int64_t MicrobatchesFor(int64_t samples) const;

  const MeshStrategyOptions& options_;
  const LossFunction loss_;
  const MeshGroups& groups_;
  UnevenDivision division_;
  std::function<absl::StatusOr<double>(double mine)> mean_weight_;  // or null
  bool apart_ = false;
  std::vector<int64_t> sizes_;  // of the step's batches, by replica
};

// Data of training steps, made once, member by member in this order; members
// hold references to earlier ones. Not thread-safe, but that each
// device's thread may use the device's stages.
struct MeshModel {
  explicit MeshModel(const MeshStrategyOptions& given) : options(given) {}
  MeshModel(const MeshModel&) = delete;
  MeshModel& operator=(const MeshModel&) = delete;

  // This rank's trained stages, in the order of the model.
  std::vector<TrainedStage*> AllStages() const;
  std::vector<int> OwnStages() const;  // their numbers
  // One of them. Requires that the stage is this rank's.
  TrainedStage& stage(int index) const {
    return *stages[static_cast<size_t>(index)];
  }
  // Does `work` for each of this rank's stages, on the threads of their devices
  // at the same time; the first error.
  absl::Status OnStages(absl::FunctionRef<absl::Status(int stage)> work) const;
  // The place of a schedule's device among this rank's.
  size_t LocalDevice(int device) const;
  // Modules train that did when this was made, or none does.
  void SetTraining(bool on) const;
  // This rank's number; 0 where there is one.
  int rank() const {
    return groups.world() == nullptr ? 0 : groups.world()->rank();
  }
  // `mine`, or another rank's error: what one rank cannot make none goes on
  // without. Collective.
  absl::Status Agree(const absl::Status& mine) const;

  MeshStrategyOptions options;
  TraitsByName traits;  // of parameters on any rank
  Mesh mesh;
  MeshGroups groups;
  std::unique_ptr<BatchShares> shares;
  std::unique_ptr<PipelineExecutor> executor;
  std::vector<TiedGroup> tied;  // weights that several stages have
  // Names in all stages, wherever they are.
  std::set<std::string> parameter_names, buffer_names;
  std::vector<TrainingModes> modes;                   // of this rank's stages
  std::vector<std::unique_ptr<TrainedStage>> stages;  // null: elsewhere
  // By stage, how many parameters come before its own.
  std::vector<int64_t> first_parameters;
  int layers = 0;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_STEP_MESH_MODEL_H_
