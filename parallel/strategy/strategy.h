// Training strategy: one of the corners of the mesh data x pipe. The training
// loop does not know which one it has.

#ifndef TANDEM_PARALLEL_STRATEGY_STRATEGY_H_
#define TANDEM_PARALLEL_STRATEGY_STRATEGY_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/named_tensors.h"
#include "core/model/batch.h"
#include "parallel/strategy/trained_state.h"

namespace tandem {

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
  NamedTensors Gradients() const;

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

  // Scores this rank's share of an evaluation batch. Replicas may have
  // different numbers of batches; ranks of one replica have the same ones.
  virtual absl::StatusOr<Score> Evaluate(const Batch& batch) = 0;

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
