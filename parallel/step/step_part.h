// Parts of a training step: each is one technique, called at the step's named
// points.

#ifndef TANDEM_PARALLEL_STEP_STEP_PART_H_
#define TANDEM_PARALLEL_STEP_STEP_PART_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/tensors.h"
#include "core/checkpoint/folder/state_part.h"
#include "core/checkpoint/stored_tensors.h"
#include "parallel/optim/parameter_update.h"
#include "parallel/pipeline/timeline.h"
#include "parallel/pipeline/training_step.h"
#include "parallel/step/step_score.h"

namespace tandem {

class LossScale;

// A training step that the host has issued, and of which it has not read yet
// what it came to.
struct PendingStep {
  struct Times {
    PipelineMoments moments;
    int64_t samples = 0;    // of this replica
    bool is_whole = false;  // has all of the schedule's microbatches
  };

  // The norm of all gradients.
  struct Norm {
    std::optional<double> known;  // to all ranks; else what this rank has:
    // Places of parameters among the model's, and of each the sum of its
    // gradient's squares, in the order of all the tensors' elements.
    std::vector<int64_t> places;
    std::vector<at::Tensor> squares;
  };

  int64_t number = 0;  // from 1
  bool alike = true;   // are replicas, after it?
  StepLosses losses;   // this rank's
  // DeviceLossScale's verdict; undefined: there is none, or it is known.
  at::Tensor found_inf;
  std::optional<ScaledStep> scaled;
  Times times;
  std::optional<Norm> norm;  // nothing: it is not measured
};

// A training step under way.
struct StepContext {
  // Parts say in Plan what the step is to be.
  bool averages_gradients = true;  // replicas do
  bool ends_alike = true;          // replicas are alike after it
  // Each device updates its stages as soon as it has their gradients, while
  // others still work.
  bool updates_at_once = true;
  // No device updates before all of this rank's have ended their collectives.
  bool updates_last = false;
  // What is left of the step needs no other rank: it updates this one's
  // parameters.
  bool is_local = false;
  bool clips_on_host = false;  // else devices clip by the norm, or nobody does
  bool measures_norm = false;  // of the gradients, to be read with the score

  int64_t samples = 0;          // of this replica's batch
  int microbatches = 0;         // that they make
  bool reduces_at_end = false;  // see StageStep::at_end
  StepGradients gradients;
  // Nothing: parameters stay as they are.
  std::optional<double> learning_rate = std::nullopt;
  // Results of the step, to be read later. Null: they have been read.
  PendingStep* pending = nullptr;
  // Norms of all gradients, where the host clips by them.
  std::optional<GradientNorms> norms = std::nullopt;
  // By this rank's devices: 1 where the device leaves the update out. Empty: it
  // does not.
  std::vector<at::Tensor> found_inf;
};

// One technique's part in a step. The driver calls each point of all parts, in
// the order of their table (parts/step_parts.h), before it comes to the next
// point. All ranks have the same parts: those with collectives meet in that
// order. A part may hold the mesh model, which outlives it.
//
// Points are called by the thread that drives the step, but for Update.
class StepPart {
 public:
  StepPart() = default;
  virtual ~StepPart() = default;
  StepPart(const StepPart&) = delete;
  StepPart& operator=(const StepPart&) = delete;

  // Before the first step: layers are made, and nobody holds their parameters
  // yet. Collective.
  virtual absl::Status ChangeLayers() { return absl::OkStatus(); }
  // Before the first step: stages are there to be trained. Collective.
  virtual absl::Status Start() { return absl::OkStatus(); }

  // Says what the step is to be; nothing is done yet.
  virtual void Plan(StepContext& step) const {}
  // Its microbatches are known, and stages have not been told of it yet.
  virtual absl::Status Begin(StepContext& step) { return absl::OkStatus(); }
  // Gradients are those of the whole batch; where devices update at once, they
  // have. From here on the step is pending.
  virtual absl::Status AfterBackward(StepContext& step) {
    return absl::OkStatus();
  }
  // Unless devices update at once: the last moment before they update.
  virtual absl::Status BeforeUpdate(StepContext& step) {
    return absl::OkStatus();
  }
  // For each stage of this rank, by the thread of its device; other devices may
  // be elsewhere in the step. Collective over the stage's replicas.
  virtual absl::Status Update(const StepContext& step, int stage) {
    return absl::OkStatus();
  }
  virtual absl::Status End(StepContext& step) { return absl::OkStatus(); }

  // Numbers of a pending step that lie on devices, which Read is given.
  virtual void AddNumbers(const PendingStep& step,
                          std::vector<at::Tensor>* numbers) const {}
  // Takes these numbers, which `numbers` is moved behind, and says in `score`
  // what they come to on all ranks. Steps are read in order. Collective.
  virtual absl::Status Read(PendingStep& step, const double*& numbers,
                            StepScore* score) {
    return absl::OkStatus();
  }
  // All pending steps have been read.
  virtual void AfterReading() {}

  // For each stage of this rank, by the thread of its device, before and after
  // batches are evaluated, or one is inferred: for their time parameters may be
  // others.
  // It ends even where it has not begun.
  virtual absl::Status BeginInference(int stage) { return absl::OkStatus(); }
  virtual absl::Status EndInference(int stage) { return absl::OkStatus(); }

  // How many steps were done before the next one, when a job goes on.
  virtual void ResumeAt(int64_t steps) {}
  // Strategy::Synchronise: replicas show what all of them come to until the
  // next step. Collective.
  virtual absl::Status ShowAlike() { return absl::OkStatus(); }
  // Parameters and buffers were given values from without.
  virtual void AfterLoad() {}

  // State of a stage's parameters beside the optimizers', by "PARAMETER.STATE".
  virtual NamedTensors State(int stage) const { return {}; }
  // What replicas share of that: this rank's slices, which State leaves out;
  // and all of it, with State, on the first of those that share. Collective
  // over these, the second.
  virtual StatePart SharedState(int stage) const { return {}; }
  virtual absl::StatusOr<NamedTensors> GatherState(int stage) const {
    return State(stage);
  }
  // Whether a state of that name is this part's.
  virtual bool HasState(const std::string& name) const { return false; }
  // Check, and load, those states of a stage's that HasState, as Optimizer's.
  virtual absl::Status CheckState(int stage, const StoredTensors& state) const {
    return absl::OkStatus();
  }
  virtual absl::Status LoadState(int stage, const StoredTensors& state) {
    return absl::OkStatus();
  }

  // Strategy's, of the part that has one.
  virtual LossScale* loss_scale() { return nullptr; }
  virtual std::vector<std::pair<std::string, double>> Measurements() const {
    return {};
  }
  virtual absl::StatusOr<std::string> DescribeTimes() { return std::string(); }

  // Communicator's, of groups of the part's own.
  virtual absl::Status Synchronize() const { return absl::OkStatus(); }
  virtual void Abort(const absl::Status& reason) {}
};

using StepPartList = std::vector<std::unique_ptr<StepPart>>;

}  // namespace tandem

#endif  // TANDEM_PARALLEL_STEP_STEP_PART_H_
