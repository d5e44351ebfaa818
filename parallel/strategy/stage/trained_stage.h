// Trained part of one pipeline stage: its parameters in flat buffers, their
// gradients' way to the whole batch's, and their update.

#ifndef TANDEM_PARALLEL_STRATEGY_STAGE_TRAINED_STAGE_H_
#define TANDEM_PARALLEL_STRATEGY_STAGE_TRAINED_STAGE_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/tensors.h"
#include "core/checkpoint/folder/state_part.h"
#include "core/comm/communicator.h"
#include "core/model/parameter_traits.h"
#include "parallel/comm_hooks/communication_hook.h"
#include "parallel/ddp/logging.h"
#include "parallel/ddp/options.h"
#include "parallel/ddp/reducer.h"
#include "parallel/ddp/replica_parameters.h"
#include "parallel/fully_sharded/fully_sharded.h"
#include "parallel/optim/parameter_update.h"
#include "parallel/optim/update_options.h"
#include "parallel/pipeline/training_step.h"
#include "parallel/reproducible/ordered_gradients.h"
#include "parallel/sharding/optimizer_sharding.h"

namespace tandem {

// What becomes of a stage's gradients in one step.
struct StageStep {
  // Whether they are averaged over replicas, where they are not summed in
  // order; else they only gather, and nothing is sent.
  bool averages = true;
  bool at_end = false;  // see StageReducer
  // Whether anybody but the optimizers is to see them: else, where replicas
  // share these, and memory, each gets the means of its own share alone.
  bool shows_gradients = true;
};

// A Reducer that a pipeline drives: microbatches gather, and the last action
// that adds gradients averages, bucket by bucket, while it runs: from its
// beginning where autograd tells of each gradient once, else from where it
// computes what was left of weights' gradients. A parameter that gets none in
// that time, but had one before, counts as ready after the action.
//
// A replica whose step has no microbatch adds zeros, and uses nothing.
//
// Errors: the Reducer's.
class StageReducer : public StageGradients {
 public:
  // `reducer` is of the stage's parameters, over its replicas. `defers`:
  // gradients come from a WeightGradientSink, perhaps several times in one
  // action.
  StageReducer(std::unique_ptr<Reducer> reducer, bool defers)
      : reducer_(std::move(reducer)), defers_(defers) {}

  // Whether the next step's gradients are averaged; else they only gather.
  void set_averages(bool on) { averages_ = on; }

  // Whether the next step's gradients wait for Finish: where layers share
  // statistics and a replica has fewer microbatches than others, it takes part
  // in these layers' collectives before it comes to gradients, and so a hook
  // that waits for other replicas must not run between them on any. The same on
  // every replica.
  void set_at_end(bool on) { at_end_ = on; }

  absl::Status Prepare() override;
  absl::Status Before(const Action& action, bool last) override;
  absl::Status After(const Action& action, bool last) override;
  absl::Status BeforeWeights(const Action& action) override;
  absl::Status Finish() override;

  Reducer& reducer() const { return *reducer_; }

 private:
  absl::Status Begin();

  const std::unique_ptr<Reducer> reducer_;
  const bool defers_;
  bool averages_ = true;
  bool at_end_ = false;
  bool has_acted_ = false;  // in this step
};

// How a stage's replicas share gradients, or parameters as well.
struct StageShards {
  ShardGroups groups;
  LayerUnits units;  // of the stage's layers
  FullyShardedOptions options;
  c10::Device device = c10::kCPU;  // the stage's, where they are to lie
};

struct TrainedStageOptions {
  UpdateOptions update;
  TraitsByName traits;  // by full name; update.optimizer_group goes first
  // How replicas are kept alike. What it names beside this stage's parameters
  // and buffers is other stages'; parameters that wait for another are of one
  // stage. `optimizer_group` is the update's.
  DistributedDataParallelOptions ddp;
  CommunicationHook hook;  // null: the all-reduce
  // See StageReducer.
  bool defers = false;
  // Sums gradients in this order instead, without a hook.
  std::optional<GradientOrder> order;
  // ReplicaParameterOptions'.
  std::function<Communicator*(const ParameterTraits& traits)> alike_group;
  // Whether replicas share the optimizers' work, and what of the job cannot.
  Sharding sharding = Sharding::kOff;
  std::string sharding_excluded_by;
  // The replicas that share; null: all.
  Communicator* sharers = nullptr;
  std::optional<StageShards> shards;
  // Ranks that have other parts of the stage's tensors; null: there are none.
  Communicator* parts = nullptr;
};

// Used by its device's thread alone, or between steps.
class TrainedStage {
 public:
  // `first_of_copy`: for each copy of a tied weight, by name, the name of the
  // group's first member. `replicas` have the same stage (null: there are no
  // others), have the same names and shapes, and must outlive this; all ranks
  // that have the same values take the first one's, where ddp.init_sync has
  // them do so. Collective over them.
  static absl::StatusOr<std::unique_ptr<TrainedStage>> Create(
      const NamedTensors& parameters, const NamedTensors& buffers,
      const std::map<std::string, std::string>& first_of_copy,
      const TrainedStageOptions& options, Communicator* replicas);

  const ReplicaParameters& parameters() const { return *parameters_; }
  const std::vector<at::Tensor>& buffers() const {
    return parameters_->buffers();
  }
  // Null: there are no others.
  Communicator* replicas() const { return parameters_->replicas(); }

  // A step begins: no parameter has a gradient. The same on every replica.
  absl::Status Prepare(const StageStep& step = {});
  // Their way to the whole batch's; null: there are no others.
  StageGradients* gradients() { return gradients_.get(); }
  // What gathers parameters for its layers; null: they are there.
  FullySharded* fully_sharded() const { return fully_sharded_; }

  // What becomes of complete gradients. Where replicas share the optimizers'
  // work, a step is of this one's share: the others' values are theirs to tell.
  ParameterUpdate& update() { return *update_; }
  // Every replica's buffers become the first one's. Collective.
  absl::Status ShareBuffers();

  // What it measured of itself, if its last step took so long in forward.
  // Null: nothing is averaged over replicas by a Reducer.
  void NoteForward(std::chrono::nanoseconds time);
  std::optional<DdpLoggingData> logging_data() const;

  // Copies of tied weights have the state of their group's first member, so
  // they are left out; what is to be loaded is given to update().optimizer()
  // for them too (ReplicaParameters::SelectState). As Optimizer::State, and
  // what is shared with other replicas too, on the first one; collective then.
  NamedTensors OptimizerState() const;
  absl::StatusOr<NamedTensors> GatherOptimizerState() const;
  // This replica's slices of what is shared; and of parameters that are, of
  // which these are the stage's, under all their names.
  StatePart SharedOptimizerState() const;
  StatePart SharedParameters(const NamedTensors& parameters) const;
  const ShardingChoice& sharding() const { return sharding_; }
  // The replicas among which that is; null: there are no others.
  Communicator* sharers() const {
    return options_.sharers == nullptr ? replicas() : options_.sharers;
  }

 private:
  explicit TrainedStage(const TrainedStageOptions& options)
      : options_(options) {}

  absl::Status MakeGradients();
  void MakeShards();
  void SumParts();

  TrainedStageOptions options_;
  ShardingChoice sharding_;
  std::unique_ptr<ReplicaParameters> parameters_;
  std::unique_ptr<StageGradients> gradients_;  // null: they are complete
  // Among what gradients_ has; null: they are not there.
  StageReducer* reducer_ = nullptr;
  FullySharded* fully_sharded_ = nullptr;
  DdpLoggingData logging_;
  std::optional<ParameterUpdate> update_;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_STRATEGY_STAGE_TRAINED_STAGE_H_
