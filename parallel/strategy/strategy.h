// Training strategy: one of the corners of the mesh data x pipe. The training
// loop does not know which one it has.
//
// Trained state: parameters, buffers and optimizer state, as each rank holds
// its part of them, as a stream of the whole, and as they are loaded.

#ifndef TANDEM_PARALLEL_STRATEGY_STRATEGY_H_
#define TANDEM_PARALLEL_STRATEGY_STRATEGY_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/tensors.h"
#include "core/model/batch.h"

namespace tandem {

// Which tensors of a whole model are meant.
struct StateParts {
  bool parameters = true;
  bool buffers = true;
  bool optimizer = false;
};

// See Strategy::GatherState.
struct WholeState {
  NamedTensors parameters;
  NamedTensors buffers;
  NamedTensors optimizer;
};

class Communicator;
class StoredTensors;
class TensorSink;
struct TensorInfo;
struct StatePart;

// The state of a strategy. Not thread-safe.
class TrainedState {
 public:
  virtual ~TrainedState() = default;

  // What this rank holds, by full name ("layer1.0.conv1.weight"). Tensors alias
  // the live ones; those of which ranks have shares (Sharding::kParameters) are
  // without values, on the device "meta": GatherState has them.
  virtual NamedTensors Parameters() const = 0;
  virtual NamedTensors Buffers() const = 0;

  // Name, dtype and whole sizes of each of these, of which this rank may have a
  // part. InvalidArgument where traits and sizes do not fit.
  virtual absl::StatusOr<std::vector<TensorInfo>> WholeTensors() const;

  // The parameters that all replicas have alike between two steps: not the ones
  // that each trains for itself (parameters_to_ignore, traits).
  virtual NamedTensors AlikeParameters() const { return Parameters(); }

  // By the full name of each trained parameter of this rank, the first of those
  // of a tied weight: which of the optimizers' groups it is in.
  virtual std::map<std::string, int64_t> OptimizerGroups() const { return {}; }

  // Parameters that hold, elsewhere on this rank, the values of another, with
  // which they share a weight: by name, the other's. Whoever sets values from
  // without sets them in both.
  virtual std::map<std::string, std::string> TiedCopies() const { return {}; }

  // Optimizer state by "PARAMETER.STATE" ("fc.weight.momentum_buffer"), with
  // PyTorch's state names; a parameter that has not been stepped has none. As
  // Optimizer::State: tensors alias the live ones until the next step, and what
  // replicas share (shard) is left out: see GatherState.
  virtual NamedTensors OptimizerState() const = 0;

  // The same of copies of tied weights here whose first another rank has: under
  // the name of that, by which LoadOptimizerState takes it. A checkpoint has it
  // from the first.
  virtual NamedTensors OptimizerStateOfCopies() const { return {}; }

  // The whole model's tensors to `sink`, on rank 0, where a checkpoint is
  // written, under their names in a checkpoint (core/checkpoint/checkpoint.h).
  // On other ranks `sink` only tells the order, which must be the same on all.
  // No rank holds more than one tensor that it did not hold before; but the
  // first replica all of a shared optimizer's state (shard), until
  // this returns. Collective.
  virtual absl::Status StreamState(const StateParts& parts,
                                   TensorSink& sink) = 0;

  // What this rank writes of a checkpoint's folder: everything, with the
  // optimizer's state, is some rank's part, and nothing is two ranks'. Of
  // replicas the first one has what they have alike, each its own of what they
  // share. Tensors alias the live ones until the next step. Not collective; but
  // devices are waited for.
  virtual absl::StatusOr<StatePart> PartToSave() = 0;
  // The ranks that have such parts, in a group, of which this is one; null:
  // others have. `world`: all ranks of the job.
  virtual Communicator* SavingGroup(Communicator* world) const { return world; }

  // All of it at once, on rank 0, for models that are small enough; what other
  // ranks get means nothing. Tensors alias the live ones where rank 0 has them.
  // Collective.
  absl::StatusOr<WholeState> GatherState();

  // Replaces values, given the whole model's: each tensor has a counterpart of
  // the same name, shape and dtype (among Parameters() and Buffers(), where a
  // rank holds all), and nothing is missing; else an error that names the first
  // that differs, and nothing is changed. Read are only the tensors that this
  // rank has, one after the other. What the state says is kept
  // (StoredTensors::Keep) has no counterpart.
  virtual absl::Status LoadModelState(const StoredTensors& state) = 0;
  virtual absl::Status LoadOptimizerState(const StoredTensors& state) = 0;
  // What these two would say, and nothing changed.
  virtual absl::Status CheckModelState(const StoredTensors& state) const = 0;
  virtual absl::Status CheckOptimizerState(
      const StoredTensors& state) const = 0;
};

class LossScale;
struct StepScore;

// Trains and evaluates this rank's part of a model. Collective: every rank of
// the job calls the same methods in the same order. Not thread-safe.
class Strategy : public TrainedState {
 public:
  Strategy();
  ~Strategy() override;

  // What runs: "single", "ddp", "model_parallel", "pipeline" or "hybrid".
  virtual std::string name() const = 0;

  // One step: forward, backward, synchronisation, clipping, update. `batch` is
  // this rank's share of the global batch. Returns the score of the global
  // batch, the same on every rank; that of this rank's share alone in a step
  // that sends nothing (replicas that train apart for a while).
  virtual absl::StatusOr<Score> TrainStep(const Batch& batch,
                                          double learning_rate) = 0;

  // The same step, without a wait for devices, or for other ranks, to know its
  // score: that is read later, for many steps at once. Until then pinned
  // tensors of `batch` must not be written.
  virtual absl::Status SubmitStep(const Batch& batch, double learning_rate);
  // Scores of the steps submitted since the last call, in order. Collective.
  virtual absl::StatusOr<std::vector<StepScore>> TakeScores();

  // The next step that is submitted gives a StepScore::gradient_norm: the
  // 2-norm of all gradients of the model, averaged over replicas, after they
  // have been clipped by value and before they are by norm. The same on every
  // rank, and in every layout but for the order of sums; a gradient of a
  // replica's own (ParameterTraits) has no part in it. A pass over the
  // gradients on their devices, which the host does not wait for. Every rank
  // asks for the same steps. Parameter servers, where no rank has all
  // gradients, give none.
  virtual void MeasureGradientNorm() {}

  // The same step in two halves, so that gradients can be looked at, changed or
  // dropped in between: forward, backward and synchronisation, which give the
  // score; then either clipping and update, or (a loss that is not finite, say)
  // neither of them. Every rank takes the same way. Parameters are those of
  // TrainStep, bit for bit; but a pipeline's devices, which there may update
  // while others still work, wait for each other here. FailedPrecondition for
  // halves that do not follow each other.
  virtual absl::StatusOr<Score> ComputeGradients(const Batch& batch) = 0;
  virtual absl::Status Update(double learning_rate) = 0;
  // The step counts, and running statistics are made alike.
  virtual absl::Status SkipUpdate() = 0;
  // The scale of UpdateOptions::grad_scaler, alike on all ranks, as of the last
  // training step whose score is known: it says whether that was skipped, too.
  // Null: the loss is not scaled.
  virtual LossScale* loss_scale() { return nullptr; }

  // Between the two halves: gradients of what this rank holds, by the
  // parameter's name; those that have none are left out. Tensors alias the live
  // ones. Each copy of a tied weight has the sum of all: to be changed alike.
  // Also after a step that was asked for its norm (MeasureGradientNorm), until
  // the next one, as its update has left them: what is clipped by norm has been
  // scaled, but for what another rank steps (shard).
  NamedTensors Gradients() const;

  // The part of them that this rank tells of: each element of a gradient that
  // several ranks have, or have parts of, is one rank's.
  virtual absl::StatusOr<StatePart> GradientPart() const;

  // Ends a step that has failed because other ranks are gone, where nothing but
  // their word was missing that they have their gradients, too
  // (MeshStrategyOptions::updates_last): this rank's parameters and optimizer
  // state become those after it. False: the step has not come so far, and they
  // are those before it. Asks no other rank.
  virtual absl::StatusOr<bool> EndBrokenStep() { return false; }

  // What layers and the loss function added to the loss (loss_terms.h) in the
  // last training step whose score is known, by name: means over its samples.
  // The same on every rank. Names are those of the first step.
  virtual std::map<std::string, double> AuxiliaryLosses() const { return {}; }

  // What layers and the loss function summed up (AddSum) in that step, by name:
  // over its samples. The same on every rank. Names are those of the first
  // step.
  virtual std::map<std::string, double> NamedSums() const { return {}; }

  // This strategy's gradients are to be averaged with those of others, which it
  // knows nothing of (workers of a parameter server). Where the loss function
  // has a weight, each training step asks for the mean of all of theirs, given
  // this one's, and has gradients whose plain mean is that of the targets.
  using MeanWeight = std::function<absl::StatusOr<double>(double mine)>;
  virtual void SetMeanWeight(MeanWeight mean) { static_cast<void>(mean); }

  // Tells how many steps were done before the next one, when a job goes on from
  // a checkpoint: for what goes by their number.
  virtual void ResumeAt(int64_t steps) { static_cast<void>(steps); }

  // Makes replicas alike that train apart for a while: to be called before
  // evaluation and before saving. It changes no training: the next step goes on
  // from what each replica had. Nothing to do for most strategies.
  virtual absl::Status Synchronise() { return absl::OkStatus(); }

  // Which tensors of a batch this rank has a use for: a stage within a pipeline
  // for neither.
  virtual bool takes_inputs() const { return true; }
  virtual bool takes_targets() const { return true; }

  // Scores this rank's share of an evaluation batch, which may be empty.
  // Replicas may have different numbers of batches, except where they share
  // parameters (Sharding::kParameters): then all of them call this together.
  // Ranks of one replica have the same batches.
  virtual absl::StatusOr<Score> Evaluate(const Batch& batch) = 0;

  // Gives the next batch of an evaluation, or none after the last one.
  using NextBatch = absl::FunctionRef<absl::StatusOr<std::optional<Batch>>()>;
  // A whole evaluation: the sum of what Evaluate gives for each batch of
  // `next`, whose errors end it. Replicas may have different numbers of them.
  // What evaluation sees instead of the parameters
  // (MeshStrategyOptions::ema_decay) takes their place once, so that `next`,
  // which must not use the strategy, may see it there.
  virtual absl::StatusOr<Score> EvaluateBatches(NextBatch next);

  // The sum of every rank's `score`, on every rank.
  virtual absl::StatusOr<Score> Sum(const Score& score) = 0;

  // What layers and the loss function summed up (AddSum) in the batches that
  // all ranks have evaluated since the last call, by name. The same on every
  // rank. Collective. Parameter servers know none.
  virtual absl::StatusOr<std::map<std::string, double>> TakeEvaluationSums() {
    return std::map<std::string, double>();
  }

  // Text for a person: who keeps the optimizer's state, and why.
  virtual std::string DescribeSharding() const { return ""; }

  // What this rank measured of itself, by name, for a report: PyTorch's names
  // of DDPLoggingData where it has them. Empty: nothing.
  virtual std::vector<std::pair<std::string, double>> Measurements() const {
    return {};
  }

  // Where the time of the steps so far went, for a person; empty: nothing to
  // say. Collective.
  virtual absl::StatusOr<std::string> DescribeTimes() { return std::string(); }

 private:
  std::vector<StepScore> scores_;  // that SubmitStep knows
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_STRATEGY_STRATEGY_H_
