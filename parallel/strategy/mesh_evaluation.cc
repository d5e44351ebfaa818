#include "parallel/strategy/mesh_evaluation.h"

#include <ATen/ops/cat.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "parallel/pipeline/microbatches.h"
#include "parallel/schedule/schedules.h"
#include "parallel/step/loss_sums.h"
#include "parallel/step/score_numbers.h"

namespace tandem {
namespace {

// Calls a point of all parts, for each of this rank's stages.
absl::Status CallParts(const MeshModel& model, const StepPartList& parts,
                       absl::Status (StepPart::*point)(int stage)) {
  return model.OnStages([&](int stage) {
    for (const auto& part : parts) {
      TANDEM_RETURN_IF_ERROR(((*part).*point)(stage));
    }
    return absl::OkStatus();
  });
}

// Whatever comes of it, parameters are trained ones afterwards.
absl::StatusOr<Inference> InferWithParts(const MeshModel& model,
                                         const StepPartList& parts,
                                         const std::vector<Batch>& microbatches,
                                         bool keeps_outputs) {
  const absl::Status begun = CallParts(model, parts, &StepPart::BeginInference);
  absl::StatusOr<Inference> inference =
      begun.ok() ? model.executor->Infer(microbatches, keeps_outputs)
                 : absl::StatusOr<Inference>(begun);
  const absl::Status ended = CallParts(model, parts, &StepPart::EndInference);
  if (inference.ok() && !ended.ok()) return ended;
  return inference;
}

}  // namespace

std::string MeshEvaluation::name() const {
  const bool one = model().groups.replicas() == 1;
  const bool sequential = model().options.schedule.name == kSequential;
  if (model().options.schedule.devices() == 1) return one ? "single" : "ddp";
  if (sequential) return one ? "model_parallel" : "ddp";
  return one ? "pipeline" : "hybrid";
}

bool MeshEvaluation::takes_inputs() const {
  return model().stages.front() != nullptr;
}

bool MeshEvaluation::takes_targets() const {
  return model().stages.back() != nullptr;
}

const PipelineExecutor& MeshEvaluation::executor() const {
  return *model().executor;
}

absl::Status MeshEvaluation::OnDevices(
    const PipelineExecutor::DeviceWork& work) {
  return model().executor->OnDevices(work);
}

absl::StatusOr<Inference> MeshEvaluation::Infer(const Batch& batch,
                                                bool keeps_outputs) {
  model().SetTraining(false);
  const std::vector<int64_t> sizes =
      EvenSizes(batch.size, model().options.schedule.microbatches);
  const absl::StatusOr<std::vector<Batch>> microbatches =
      SplitBatch(batch, sizes);
  absl::StatusOr<Inference> inference =
      microbatches.ok()
          ? InferWithParts(model(), parts(), *microbatches, keeps_outputs)
          : microbatches.status();
  if (inference.ok()) {
    const absl::Status ended = Synchronize();
    if (!ended.ok()) inference = ended;
  }
  model().SetTraining(true);  // layers may be others', too
  if (!inference.ok()) Abort(inference.status());
  return inference;
}

absl::StatusOr<Score> MeshEvaluation::Evaluate(const Batch& batch) {
  if (batch.size == 0) return Score{};
  const absl::StatusOr<Inference> inference =
      Infer(batch, /*keeps_outputs=*/false);
  absl::Status done = inference.status();
  if (done.ok()) {
    done = AddSums(inference->sums);
    if (!done.ok()) Abort(done);
  }
  if (!done.ok()) return Annotate(done, "evaluation");
  return inference->score;
}

absl::StatusOr<at::Tensor> MeshEvaluation::Forward(const Batch& batch) {
  if (batch.size == 0) {
    return absl::InvalidArgumentError("a batch needs at least one sample");
  }
  TANDEM_ASSIGN_OR_RETURN(const Inference inference,
                          Infer(batch, /*keeps_outputs=*/true));
  if (inference.outputs.empty()) return at::Tensor();
  return CatchTorchOr([&] { return at::cat(inference.outputs); });
}

absl::Status MeshEvaluation::AddSums(const std::vector<LossTerm>& sums) {
  std::vector<at::Tensor> numbers;
  for (const LossTerm& each : sums) numbers.push_back(each.loss);
  if (numbers.empty()) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(const std::vector<double> values,
                          model().executor->Read(numbers));
  for (size_t i = 0; i < sums.size(); ++i) {
    sums_[sums[i].name] += values[i];
  }
  return absl::OkStatus();
}

absl::StatusOr<std::map<std::string, double>>
MeshEvaluation::TakeEvaluationSums() {
  std::vector<LossSums::Part> mine;
  for (const auto& [name, sum] : std::exchange(sums_, {})) {
    mine.push_back({name, /*microbatch=*/0, sum});
  }
  LossSums all;  // names are agreed on anew
  TANDEM_RETURN_IF_ERROR(
      all.Sum(mine, /*microbatches=*/1, model().groups.world()));
  return all.sums();
}

absl::StatusOr<Score> MeshEvaluation::Sum(const Score& score) {
  return SumOver(model().groups.world(), score, [] { return "the loss"; });
}

}  // namespace tandem
