// Evaluation by a mesh strategy: forward passes alone, and what they come to.

#ifndef TANDEM_PARALLEL_STRATEGY_MESH_EVALUATION_H_
#define TANDEM_PARALLEL_STRATEGY_MESH_EVALUATION_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/loss/loss_terms.h"
#include "core/model/batch.h"
#include "parallel/pipeline/executor.h"
#include "parallel/pipeline/training_step.h"
#include "parallel/step/mesh_model.h"
#include "parallel/step/step_part.h"
#include "parallel/strategy/mesh_state.h"

namespace tandem {

// Which corner of the mesh it is, and what its forward passes give.
class MeshEvaluation : public MeshState {
 public:
  std::string name() const override;
  bool takes_inputs() const override;
  bool takes_targets() const override;
  const PipelineExecutor& executor() const override;
  absl::Status OnDevices(const PipelineExecutor::DeviceWork& work) override;

  // The score where the last stage is; elsewhere an empty one.
  absl::StatusOr<Score> Evaluate(const Batch& batch) override;
  absl::StatusOr<Score> EvaluateBatches(NextBatch next) override;
  absl::StatusOr<at::Tensor> Forward(const Batch& batch) override;
  absl::StatusOr<Score> Sum(const Score& score) override;
  absl::StatusOr<std::map<std::string, double>> TakeEvaluationSums() override;

 protected:
  MeshEvaluation(std::unique_ptr<MeshModel> model, StepPartList parts)
      : MeshState(std::move(model), std::move(parts)) {}

 private:
  // Does `work` while parts show what inference sees, and then waits for it.
  // Whatever comes of it, parameters are trained ones afterwards.
  absl::Status WithParts(absl::FunctionRef<absl::Status()> work);
  // Whether layers' parameters are gathered for a forward pass.
  bool gathers() const;
  // Before each forward pass, within WithParts: replicas that share parameters
  // gather them together, also those without samples (0), or without any more
  // (none). Whether any of them may have more.
  absl::StatusOr<bool> BeginPass(std::optional<int64_t> samples);
  // A batch's forward pass, after that.
  absl::StatusOr<Inference> Infer(const Batch& batch, bool keeps_outputs);
  // An error of this strategy's own, which no rank is to wait for.
  absl::Status Failed(const absl::Status& done);
  // Adds the named sums of a batch that was evaluated.
  absl::Status AddSums(const std::vector<LossTerm>& sums);

  std::map<std::string, double> sums_;  // this rank's, not taken
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_STRATEGY_MESH_EVALUATION_H_
