// State of a mesh strategy: what a rank holds of the model's tensors and of
// their optimizers' state, and what it says of itself.

#ifndef TANDEM_PARALLEL_STRATEGY_MESH_STATE_H_
#define TANDEM_PARALLEL_STRATEGY_MESH_STATE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/tensors.h"
#include "core/checkpoint/folder/state_part.h"
#include "core/checkpoint/stored_tensors.h"
#include "core/checkpoint/tensor_stream.h"
#include "parallel/fully_sharded/fully_sharded.h"
#include "parallel/step/mesh_model.h"
#include "parallel/step/step_part.h"
#include "parallel/strategy/mesh_strategy.h"
#include "parallel/strategy/owned_state.h"

namespace tandem {

// TrainedState of a mesh model and of its step's parts.
class MeshState : public MeshStrategy {
 public:
  NamedTensors Parameters() const override;
  NamedTensors Buffers() const override;
  absl::StatusOr<std::vector<TensorInfo>> WholeTensors() const override;
  NamedTensors AlikeParameters() const override;
  std::map<std::string, int64_t> OptimizerGroups() const override;
  std::map<std::string, std::string> TiedCopies() const override;
  NamedTensors OptimizerState() const override;
  NamedTensors OptimizerStateOfCopies() const override;
  absl::Status StreamState(const StateParts& parts, TensorSink& sink) override;
  absl::StatusOr<StatePart> PartToSave() override;
  absl::StatusOr<StatePart> GradientPart() const override;
  absl::Status LoadModelState(const StoredTensors& state) override;
  absl::Status LoadOptimizerState(const StoredTensors& state) override;
  absl::Status CheckModelState(const StoredTensors& state) const override;
  absl::Status CheckOptimizerState(const StoredTensors& state) const override;

  std::string DescribeSharding() const override;
  std::vector<std::pair<std::string, double>> Measurements() const override;
  absl::StatusOr<std::string> DescribeTimes() override;

 protected:
  MeshState(std::unique_ptr<MeshModel> model, StepPartList parts)
      : model_(std::move(model)), parts_(std::move(parts)) {}

  MeshModel& model() const { return *model_; }
  // In the order of their table.
  const StepPartList& parts() const { return parts_; }

  // Communicator's, of all groups.
  absl::Status Synchronize() const;
  // The same of those that a step uses before its loss is summed.
  absl::Status SynchronizeStep() const;
  // Nobody shall wait for this rank.
  void Abort(const absl::Status& reason);

 private:
  absl::StatusOr<NamedTensors> GatherOptimizerState() const;
  // Where they are wanted, of what ranks have shares of. Collective.
  absl::StatusOr<FullySharded::ParameterCopies> CopySharded(bool wanted);
  // Adds the values of what the state keeps and ranks have shares of, which are
  // replaced together. Collective.
  absl::Status AddKeptShares(StoredTensors& state);
  // On the threads of their devices, of this rank's stages that are sharded.
  absl::Status OnSharded(absl::Status (FullySharded::*work)());
  // What this rank has a part of alone, and its place for those who ask.
  absl::StatusOr<ShardsByName> Shards() const;
  OwnerPlace Place(const ShardsByName& shards) const;
  // Pick this rank's part of a whole model's state; the latter that of its
  // stages, in the order of OwnStages.
  absl::StatusOr<StoredTensors> ModelTensors(const StoredTensors& state) const;
  absl::StatusOr<std::vector<StoredTensors>> OptimizerStates(
      const StoredTensors& state) const;
  // Leaves out states that are a part's.
  StoredTensors WithoutParts(const StoredTensors& state) const;

  const std::unique_ptr<MeshModel> model_;
  const StepPartList parts_;  // hold the model
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_STRATEGY_MESH_STATE_H_
