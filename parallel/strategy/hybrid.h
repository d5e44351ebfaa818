// Replicas of a model side by side, each of them cut into stages over the
// devices of one rank, over ranks, or both, and kept busy by microbatches.

#ifndef TANDEM_PARALLEL_STRATEGY_HYBRID_H_
#define TANDEM_PARALLEL_STRATEGY_HYBRID_H_

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/comm/communicator.h"
#include "core/loss/loss.h"
#include "core/model/layer.h"
#include "parallel/comm_hooks/communication_hook.h"
#include "parallel/ddp/buckets.h"
#include "parallel/optim/flat_buffer_list.h"
#include "parallel/optim/make_optimizer.h"
#include "parallel/pipeline/executor.h"
#include "parallel/pipeline/model.h"
#include "parallel/report/pipeline_times.h"
#include "parallel/schedule/schedule.h"
#include "parallel/strategy/hybrid_groups.h"
#include "parallel/strategy/loss_sums.h"
#include "parallel/strategy/step_halves.h"
#include "parallel/strategy/strategy.h"
#include "parallel/strategy/tied_gradients.h"
#include "parallel/strategy/trained_stage.h"

namespace tandem {

struct HybridOptions {
  // Of one replica, on as many devices as are its ranks x devices.size(). There
  // are as many replicas as the ranks of the job make.
  Schedule schedule;
  Cuts cuts;                                       // into the schedule's stages
  std::vector<c10::Device> devices = {c10::kCPU};  // this rank's
  // Samples of a microbatch, the last one's fewer where they do not divide; 0:
  // the schedule's microbatches differ by one at most.
  int64_t microbatch_size = 0;
  // Steps may have fewer samples than others, as at the end of a data set, and
  // replicas different numbers of them, some none: the gradient is that of the
  // mean over all samples of the step. A step has at most the schedule's
  // microbatches then, else as many. Replicas tell each other how many samples
  // they have before each step. With `reproducible`, which needs a
  // microbatch_size, samples may be missing at the end of the whole batch
  // alone.
  bool uneven_batches = false;
  PipelineOptions pipeline;
  // See core/model/weight_gradient_sink.h; 1: each microbatch's for itself.
  int weight_gradient_batch = 1;
  // Of initial values, and of what layers draw.
  uint64_t seed = 0;
  OptimizerOptions optimizer = SgdOptions{};         // of optimizer_group's 0
  std::vector<OptimizerOptions> further_optimizers;  // of its groups 1, 2, ...
  // By a parameter's full name; null: all are in group 0.
  std::function<int64_t(const std::string&)> optimizer_group;
  // As ReplicatedOptions'. The norm is that of the whole model.
  double clip_norm = 0;
  double clip_norm_type = 2;
  bool error_if_nonfinite = false;
  double clip_value = 0;
  // How a stage's gradients are averaged over replicas.
  BucketOptions buckets;
  bool find_unused_parameters = false;
  // Replaces the all-reduce: makes the hook of each stage. Null: does not.
  std::function<absl::StatusOr<CommunicationHook>()> make_hook;
  // After each step running statistics become those of the first replica.
  bool broadcast_buffers = true;
  // The same bits in every layout of the mesh, for the same batch and
  // microbatch size: see docs/hybrid.md.
  bool reproducible = false;
  // Into how many groups a whole batch's microbatches are put, whose sums are
  // added in a tree (ordered_gradients.h); 0: each is a group.
  int gradient_groups = 0;
};

// The mesh data x pipe of core/mesh/mesh.h: rank = replica * pipe + place along
// the pipeline, and pipe = the schedule's devices / devices.size(). One device,
// DDP and a pipeline are its corners, and run the same code.
//
// Each step is one of the schedule on every replica, on its own part of the
// batch. When a stage's last microbatch has given its gradients they are
// averaged over the stage's replicas, bucket by bucket, while other stages
// still work; accumulation over microbatches averages once. Then the gradients
// of tied weights are summed, gradients clipped, and every device updates its
// own parameters; where nothing is tied across stages or clipped by norm, as
// soon as it has done its part. The result is that of the uncut model over the
// same microbatches, but for the order of sums. After every step a stage's
// parameters, buffers and optimizer state have the same bits on all replicas.
//
// All ranks call the same methods; ranks of one replica with the same batch, of
// the same size on all replicas unless batches may be uneven. The first stage's
// rank needs its inputs, further ones included, and the last one's its targets,
// further ones included; others may leave them undefined.
//
// Schedule, cuts, seed and the other options must be the same on all ranks:
// Create compares them (hybrid_agreement.h).
// At the start every replica takes the first one's parameters and buffers, and
// every copy of a tied weight that of the first layer that has it.
//
// Errors: InvalidArgument for parts that do not fit each other, replicas with
// different models, two layers of one name, a batch that gives another number
// of microbatches than the schedule's, a model without parameters, a layer that
// cannot be made (on all ranks, with the first such rank's reason); those of
// PipelineExecutor, Reducer, Communicator and LibTorch. When one rank fails the
// others fail at once, with its reason; some stages may have been updated by
// then, so that a job goes on from its last checkpoint.
//
// Fault points: PipelineExecutor's, the Reducer's, and "before_optimizer".
class Hybrid : public Strategy {
 public:
  // `world` is the communicator of all ranks, null for one; it must outlive the
  // strategy. Collective.
  static absl::StatusOr<std::unique_ptr<Hybrid>> Create(
      const LayerSpecs& specs, const LossFunction& loss,
      const HybridOptions& options, Communicator* world);

  // "pipeline" for one replica on several devices, else "hybrid".
  std::string name() const override;
  absl::StatusOr<Score> TrainStep(const Batch& batch,
                                  double learning_rate) override;
  absl::StatusOr<Score> ComputeGradients(const Batch& batch) override;
  absl::Status Update(double learning_rate) override;
  absl::Status SkipUpdate() override;
  std::map<std::string, double> AddedLosses() const override {
    return added_losses_.means();
  }
  void ResumeAt(int64_t steps) override { step_ = steps; }
  bool takes_inputs() const override { return stages_.front() != nullptr; }
  bool takes_targets() const override { return stages_.back() != nullptr; }
  // The score where the last stage is; elsewhere an empty one.
  absl::StatusOr<Score> Evaluate(const Batch& batch) override;
  absl::StatusOr<Score> Sum(const Score& score) override;
  NamedTensors Parameters() const override;
  NamedTensors Buffers() const override;
  NamedTensors OptimizerState() const override;
  absl::Status StreamState(const StateParts& parts, TensorSink& sink) override;
  // bubble_report.h's, and how many microbatches' activations each device held
  // at most, beside the schedule's bound.
  absl::StatusOr<std::string> DescribeTimes() override;
  absl::Status LoadModelState(const StoredTensors& state) override;
  absl::Status LoadOptimizerState(const StoredTensors& state) override;
  absl::Status CheckModelState(const StoredTensors& state) const override;
  absl::Status CheckOptimizerState(const StoredTensors& state) const override;

  // The outputs of the model for `batch`, [batch.size, ...], on the last
  // stage's device; undefined where that is not here. In evaluation mode. They
  // are the last layer's; what the loss takes beside them is not given.
  absl::StatusOr<at::Tensor> Forward(const Batch& batch);

  const PipelineExecutor& executor() const { return *executor_; }
  // On the threads of this rank's devices, between steps: to bind them to
  // cores, say.
  absl::Status OnDevices(const PipelineExecutor::DeviceWork& work) {
    return executor_->OnDevices(work);
  }

 private:
  explicit Hybrid(const HybridOptions& options);

  absl::Status Prepare(const LayerSpecs& specs, const LossFunction& loss,
                       Communicator* world);
  absl::Status MakeGroups(Communicator* world);
  absl::StatusOr<PipelineExecutor::Stages> MakeOwnStages(
      const LayerSpecs& specs, const LossFunction& loss,
      const PipelineLayout& layout) const;
  absl::Status Agree(const absl::Status& mine);
  absl::Status CompareReplicas();
  absl::Status MakeTrainedStages(const std::vector<TiedGroup>& tied);
  absl::Status CountParameters();
  absl::StatusOr<GradientOrder> OrderOfGroups() const;
  absl::StatusOr<std::vector<Batch>> Microbatches(const Batch& batch) const;
  absl::Status LearnSizes(int64_t size);
  absl::StatusOr<StepSamples> SamplesOfStep(
      const std::vector<Batch>& microbatches);
  absl::StatusOr<std::vector<double>> LossParts(
      const std::vector<Batch>& microbatches);
  int64_t MicrobatchesOf(int replica) const;
  absl::StatusOr<Score> SumInOrder() const;
  absl::Status SumAddedLosses();
  absl::Status ApplyStatistics(int stage);
  // With a learning rate devices update as soon as they can.
  absl::StatusOr<Score> Compute(const Batch& batch,
                                std::optional<double> learning_rate);
  StepHooks Hooks(std::optional<double> learning_rate);
  // This rank's stages of a device of the schedule, or all.
  std::vector<TrainedStage*> StagesOf(int device) const;
  std::vector<TrainedStage*> AllStages() const;
  bool updates_at_once() const;
  // Without a learning rate parameters stay as they are.
  absl::Status Finish(std::optional<double> learning_rate);
  NamedTensors Model() const;
  // Of a whole model's state what is this rank's; the optimizer's by stage.
  StoredTensors ModelStateOf(const StoredTensors& state) const;
  std::vector<StoredTensors> OptimizerStateOf(const StoredTensors& state) const;
  absl::Status UpdateDevice(int device, std::optional<double> norm,
                            std::optional<double> learning_rate);
  absl::StatusOr<double> NormOfAll();
  absl::StatusOr<Inference> Infer(const Batch& batch, bool keeps_outputs);
  FlatBufferList AllBuffers() const;
  void Measure(const Batch& batch);
  // Others would wait for this rank.
  void Abort(const absl::Status& reason);

  HybridOptions options_;
  LossFunction loss_;
  HybridGroups groups_;
  std::unique_ptr<PipelineExecutor> executor_;
  std::vector<std::unique_ptr<TrainedStage>> stages_;  // null: elsewhere
  // By stage, how many parameters come before its own.
  std::vector<int64_t> first_parameters_;
  std::unique_ptr<TiedGradients> tied_;
  LossSums added_losses_;
  PipelineTimes times_;
  int layers_ = 0;
  int64_t batch_size_ = 0;      // of the last step that was measured
  std::vector<int64_t> sizes_;  // of the step's batches, by replica
  int64_t step_ = 0;
  StepHalves halves_;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_STRATEGY_HYBRID_H_
