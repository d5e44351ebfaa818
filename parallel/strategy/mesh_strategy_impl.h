// Implementation of MeshStrategy: a pipeline's executor, what is trained of
// each stage, and the groups of ranks that sum it.

#ifndef TANDEM_PARALLEL_STRATEGY_MESH_STRATEGY_IMPL_H_
#define TANDEM_PARALLEL_STRATEGY_MESH_STRATEGY_IMPL_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/comm/communicator.h"
#include "core/loss/loss.h"
#include "core/model/layer.h"
#include "parallel/pipeline/executor.h"
#include "parallel/step/mesh_model.h"
#include "parallel/step/pending_step.h"
#include "parallel/step/step_part.h"
#include "parallel/step/step_score.h"
#include "parallel/strategy/mesh_strategy.h"
#include "parallel/strategy/stage/trained_stage.h"
#include "parallel/strategy/step_halves.h"

namespace tandem {

// See MeshStrategy, which users see.
class MeshStrategyImpl : public MeshStrategy {
 public:
  static absl::StatusOr<std::unique_ptr<MeshStrategyImpl>> Create(
      const LayerSpecs& specs, const LossFunction& loss,
      const MeshStrategyOptions& options, Communicator* world);

  std::string name() const override;
  absl::StatusOr<Score> TrainStep(const Batch& batch,
                                  double learning_rate) override;
  absl::Status SubmitStep(const Batch& batch, double learning_rate) override;
  absl::StatusOr<std::vector<StepScore>> TakeScores() override;
  void MeasureGradientNorm() override { measures_norm_ = true; }
  absl::StatusOr<Score> ComputeGradients(const Batch& batch) override;
  absl::Status Update(double learning_rate) override;
  absl::Status SkipUpdate() override;
  std::map<std::string, double> AuxiliaryLosses() const override;
  std::map<std::string, double> NamedSums() const override;
  LossScale* loss_scale() override;
  void SetMeanWeight(MeanWeight mean) override;
  void ResumeAt(int64_t steps) override;
  absl::Status Synchronise() override;
  bool takes_inputs() const override {
    return model_->stages.front() != nullptr;
  }
  bool takes_targets() const override {
    return model_->stages.back() != nullptr;
  }
  // The score where the last stage is; elsewhere an empty one.
  absl::StatusOr<Score> Evaluate(const Batch& batch) override;
  absl::StatusOr<Score> Sum(const Score& score) override;
  absl::StatusOr<std::map<std::string, double>> TakeEvaluationSums() override;
  NamedTensors Parameters() const override;
  NamedTensors Buffers() const override;
  NamedTensors AlikeParameters() const override;
  std::map<std::string, int64_t> OptimizerGroups() const override;
  std::map<std::string, std::string> TiedCopies() const override;
  NamedTensors OptimizerState() const override;
  std::string DescribeSharding() const override;
  std::vector<std::pair<std::string, double>> Measurements() const override;
  absl::Status StreamState(const StateParts& parts, TensorSink& sink) override;
  absl::StatusOr<StatePart> PartToSave() override;
  absl::StatusOr<std::string> DescribeTimes() override;
  absl::Status LoadModelState(const StoredTensors& state) override;
  absl::Status LoadOptimizerState(const StoredTensors& state) override;
  absl::Status CheckModelState(const StoredTensors& state) const override;
  absl::Status CheckOptimizerState(const StoredTensors& state) const override;
  absl::StatusOr<at::Tensor> Forward(const Batch& batch) override;
  absl::Status SetUnevenDivision(UnevenDivision division) override;
  UnevenDivision uneven_division() const override;
  const PipelineExecutor& executor() const override {
    return *model_->executor;
  }
  absl::Status OnDevices(const PipelineExecutor::DeviceWork& work) override;

 private:
  explicit MeshStrategyImpl(const MeshStrategyOptions& options);

  absl::Status Prepare(const LayerSpecs& specs, const LossFunction& loss,
                       Communicator* world);
  absl::Status MakeGroups(Communicator* world);
  absl::Status CheckNames();
  absl::Status CheckGroups() const;
  absl::Status CompareReplicas();
  absl::Status MakeTrainedStages();
  absl::Status CountParameters();
  // What the next step is to be.
  StepContext Plan() const;
  // Up to complete gradients; where devices update at once, up to that.
  absl::Status Compute(const Batch& batch, StepContext& step);
  // What devices do that do not update at once.
  absl::Status Finish(StepContext& step);
  absl::Status End(StepContext& step);
  absl::Status SecondHalf(std::optional<double> learning_rate);
  absl::Status Submit(const Batch& batch, double learning_rate,
                      bool defers_scores);
  // Of all pending steps; the last one's.
  absl::StatusOr<Score> ReadLast();
  absl::Status ReadPending();
  absl::Status ReadOrAbort();
  NamedTensors Model() const;
  absl::StatusOr<NamedTensors> GatherOptimizerState() const;
  // Of a whole model's state what is this rank's; the optimizer's by stage.
  StoredTensors ModelStateOf(const StoredTensors& state) const;
  std::vector<StoredTensors> OptimizerStateOf(const StoredTensors& state) const;
  // Of a stage's what is no part's.
  StoredTensors WithoutParts(const StoredTensors& state) const;
  absl::Status UpdateDevice(const StepContext& step, int device);
  absl::StatusOr<Inference> Infer(const Batch& batch, bool keeps_outputs);
  // Those of the batch that was evaluated last.
  absl::Status AddEvaluationSums();
  // Communicator's, of all groups.
  absl::Status Synchronize() const;
  // Of what carries activations and gradients.
  absl::Status SynchronizeParts() const;
  void Abort(const absl::Status& reason);

  const std::unique_ptr<MeshModel> model_;
  StepPartList parts_;
  std::map<std::string, double> evaluation_sums_;  // this rank's, not taken
  std::vector<PendingStep> pending_;
  std::vector<StepScore> scores_;  // read, and not taken
  StepScore last_;                 // of the last step that was read
  int64_t step_ = 0;               // done
  StepHalves halves_;
  std::optional<StepContext> halved_;  // the step that is done in halves
  bool measures_norm_ = false;         // of the step under way, or the next
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_STRATEGY_MESH_STRATEGY_IMPL_H_
