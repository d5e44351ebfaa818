// Data-parallel strategy: whole replicas of the model, one per rank, each fed
// its own samples (distributed data parallel); with one rank, the single
// device. A replica may lie on several devices (model_parallel.h).

#ifndef TANDEM_PARALLEL_STRATEGY_REPLICATED_H_
#define TANDEM_PARALLEL_STRATEGY_REPLICATED_H_

#include <c10/core/Device.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/named_tensors.h"
#include "core/comm/communicator.h"
#include "core/comm/pending_collective.h"
#include "core/loss/deferred_score.h"
#include "core/loss/loss.h"
#include "core/loss/loss_terms.h"
#include "core/model/batch.h"
#include "core/model/layer.h"
#include "core/model/layer_list.h"
#include "core/model/parameter_traits.h"
#include "parallel/comm_hooks/communication_hook.h"
#include "parallel/ddp/distributed_data_parallel.h"
#include "parallel/ddp/layer_list_traits.h"
#include "parallel/ddp/options.h"
#include "parallel/ddp/parameter_averaging.h"
#include "parallel/optim/parameter_update.h"
#include "parallel/optim/update_options.h"
#include "parallel/pipeline/loss_weights.h"
#include "parallel/strategy/loss_sums.h"
#include "parallel/strategy/step_halves.h"
#include "parallel/strategy/strategy.h"

namespace tandem {

// How parameters are updated is said by the base. Gradients of
// ddp.parameters_to_ignore, each rank's own, have no part in the norm of all:
// they have a norm of their own and the same bound.
struct ReplicatedOptions : UpdateOptions {
  // Buffers are broadcast after each step, not before forward: the same values,
  // and evaluation needs no collective. `optimizer_group` is the base's.
  DistributedDataParallelOptions ddp;
  CommunicationHook hook;  // replaces the all-reduce; null: does not
  // Each batch is cut into as many equal parts, whose gradients add up; only
  // the last one's backward averages over ranks.
  int64_t accumulation_steps = 1;
  // If set, replicas train apart, each on its own gradients, and parameters are
  // averaged instead (post-local SGD); buffers are broadcast then. Optimizer
  // state stays each rank's own. Between two averagings nothing is sent.
  std::optional<ParameterAveragingOptions> averaging;
  // Where layers and batches are brought. None: layers stay where they are, and
  // take batches from anywhere, as those of SpreadOverDevices do.
  std::optional<c10::Device> device = c10::kCPU;
  // Of the random numbers that layers draw for samples (SampleScope). Samples
  // of a step are numbered by rank, as if each had as many as this one.
  uint64_t seed = 0;
};

// DistributedDataParallel as a strategy: at the start every rank takes rank 0's
// parameters and buffers; each step averages the ranks' gradients while
// backward runs: the mean of means, equal to the gradient of the whole batch
// where all ranks have as many predictions, and wherever the loss function has
// a weight (core/loss/loss.h), which ranks then tell each other. A parameter
// that no rank used (options.ddp must allow it, except with one rank) is left
// alone.
//
// After every step parameters, buffers and optimizer state hold the same bits
// on all ranks, but for options.averaging and options.ddp.parameters_to_ignore,
// which are never averaged. A loss that is NaN or infinite shows in the score;
// the step is done all the same. Where a step sends nothing (options.averaging)
// its score is that of this rank's share alone.
//
// Errors: InvalidArgument when ranks have different models, when nothing is to
// be trained, when a batch is empty, does not divide or does not fit the model
// (further inputs and targets that it lacks, or that nobody reads, included),
// or when the loss takes what no layer leaves;
// Internal when a parameter or its gradient was replaced; those of
// DistributedDataParallel, Communicator and LibTorch. When one rank fails the
// others fail at once, with its reason.
//
// Fault points: "after_forward", "bucket:N", "before_optimizer".
class Replicated : public Strategy {
 public:
  // Moves `layers` to the device. `data` is the communicator of all replicas;
  // it must outlive the strategy. Collective.
  static absl::StatusOr<std::unique_ptr<Replicated>> Create(
      LayerList layers, LossFunction loss, const ReplicatedOptions& options,
      Communicator& data);

  // "ddp" with several ranks; with one "single", or "model_parallel" without a
  // device of options.
  std::string name() const override;
  absl::StatusOr<Score> TrainStep(const Batch& batch,
                                  double learning_rate) override;
  absl::StatusOr<Score> ComputeGradients(const Batch& batch) override;
  absl::Status Update(double learning_rate) override;
  absl::Status SkipUpdate() override;
  std::map<std::string, double> AuxiliaryLosses() const override {
    return auxiliary_losses_.means();
  }
  void ResumeAt(int64_t steps) override;
  absl::Status Synchronise() override;
  absl::StatusOr<Score> Evaluate(const Batch& batch) override;
  absl::StatusOr<Score> Sum(const Score& score) override;
  NamedTensors Parameters() const override { return parameters_; }
  NamedTensors Buffers() const override { return buffers_; }
  NamedTensors OptimizerState() const override;
  std::vector<std::pair<std::string, double>> Measurements() const override;
  absl::Status StreamState(const StateParts& parts, TensorSink& sink) override;
  absl::Status LoadModelState(const StoredTensors& state) override;
  absl::Status LoadOptimizerState(const StoredTensors& state) override;
  absl::Status CheckModelState(const StoredTensors& state) const override;
  absl::Status CheckOptimizerState(const StoredTensors& state) const override;

 private:
  Replicated(LossFunction loss, const ReplicatedOptions& options,
             Communicator& data);

  absl::Status Prepare(LayerList layers);
  // What a model says of its parameters, as DDP takes it.
  absl::Status Apply(const TraitsByName& traits,
                     DistributedDataParallelOptions* ddp) const;
  NamedTensors Model() const;
  absl::StatusOr<Score> Compute(const Batch& batch);
  absl::StatusOr<Score> ForwardBackward(const Batch& batch);
  // The last layer's output, and what the loss takes beside it.
  using Outputs = std::pair<at::Tensor, Skips>;
  // One of a step's parts, in forward.
  struct PartResult {
    LossArguments arguments;
    LossResult loss;
    LossTerms terms;
  };
  // What was added to a part's loss: not read yet.
  struct AddedPart {
    std::string name;
    int64_t part = 0;  // among those of all ranks
    double weight = 1;
    at::Tensor loss;  // detached
  };
  absl::StatusOr<PartResult> ForwardPart(const Batch& part,
                                         int64_t first_sample);
  absl::StatusOr<at::Tensor> WeighedLoss(const PartResult& result, size_t part,
                                         double samples_part,
                                         std::vector<AddedPart>* added);
  absl::Status SumAuxiliaryLosses(const std::vector<AddedPart>& added);
  absl::StatusOr<Outputs> Forward(const Batch& batch);
  absl::StatusOr<LossArguments> Arguments(const Outputs& outputs,
                                          const Batch& batch) const;
  absl::StatusOr<LossResult> Loss(const LossArguments& arguments) const;
  absl::StatusOr<Score> Judge(const Batch& batch);
  absl::StatusOr<Score> SumOf(const std::vector<DeferredScore>& scores) const;
  absl::Status StartSumOfScores(const Score& score);
  absl::StatusOr<Score> SumOfScores();
  absl::Status Finish(std::optional<double> learning_rate);
  absl::Status MakeAlike();
  absl::Status BroadcastBuffers();
  bool averages_gradients() const;
  bool communicates() const;
  absl::Status Clip();

  LossFunction loss_;
  ReplicatedOptions options_;
  Communicator& data_;
  NamedTensors parameters_;
  NamedTensors buffers_;
  std::vector<std::string> further_inputs_;  // that layers read
  std::unique_ptr<DistributedDataParallel<LayerList>> ddp_;
  std::optional<ParameterUpdate> update_;
  std::optional<PeriodicParameterAverager> averager_;
  int64_t steps_ = 0;  // done
  bool alike_ = true;  // replicas are, at the moment
  StepHalves halves_;
  LossSums auxiliary_losses_;
  at::Tensor sums_;  // [3], double: a score under way
  PendingCollective summing_;
  RankLossParts loss_parts_;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_STRATEGY_REPLICATED_H_
