#include "parallel/strategy/mesh_evaluation.h"

#include <ATen/ops/cat.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "parallel/fully_sharded/fully_sharded.h"
#include "parallel/pipeline/microbatches.h"
#include "parallel/schedule/schedules.h"
#include "parallel/step/loss_sums.h"
#include "parallel/step/step_score.h"
#include "parallel/strategy/stage/trained_stage.h"

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

absl::Status MeshEvaluation::WithParts(absl::FunctionRef<absl::Status()> work) {
  model().SetTraining(false);
  absl::Status done = CallParts(model(), parts(), &StepPart::BeginInference);
  if (done.ok()) done = work();
  const absl::Status ended =
      CallParts(model(), parts(), &StepPart::EndInference);
  if (done.ok()) done = ended;
  if (done.ok()) done = Synchronize();
  model().SetTraining(true);  // layers may be others', too
  return done;
}

bool MeshEvaluation::gathers() const {
  return model().options.shard == Sharding::kParameters;
}

absl::StatusOr<bool> MeshEvaluation::BeginPass(std::optional<int64_t> samples) {
  if (!gathers()) return samples.has_value();
  const int microbatches =
      !samples.has_value() ? FullySharded::kNoMore
      : *samples == 0
          ? 0
          : static_cast<int>(
                EvenSizes(*samples, model().options.schedule.microbatches)
                    .size());
  std::atomic<bool> goes_on = samples.has_value();
  TANDEM_RETURN_IF_ERROR(model().OnStages([&](int stage) -> absl::Status {
    FullySharded* const sharded = model().stage(stage).fully_sharded();
    if (sharded == nullptr) return absl::OkStatus();
    TANDEM_ASSIGN_OR_RETURN(const bool some,
                            sharded->BeginInference(microbatches));
    if (some) goes_on = true;
    return absl::OkStatus();
  }));
  return goes_on.load();
}

absl::StatusOr<Inference> MeshEvaluation::Infer(const Batch& batch,
                                                bool keeps_outputs) {
  const std::vector<int64_t> sizes =
      EvenSizes(batch.size, model().options.schedule.microbatches);
  TANDEM_ASSIGN_OR_RETURN(const std::vector<Batch> microbatches,
                          SplitBatch(batch, sizes));
  return model().executor->Infer(microbatches, keeps_outputs);
}

absl::Status MeshEvaluation::Failed(const absl::Status& done) {
  Abort(done);
  return done;
}

absl::StatusOr<Score> MeshEvaluation::Evaluate(const Batch& batch) {
  if (batch.size == 0 && !gathers()) return Score{};
  Inference inference;
  absl::Status done = WithParts([&]() -> absl::Status {
    TANDEM_RETURN_IF_ERROR(BeginPass(batch.size).status());
    if (batch.size == 0) return absl::OkStatus();
    TANDEM_ASSIGN_OR_RETURN(inference, Infer(batch, /*keeps_outputs=*/false));
    return absl::OkStatus();
  });
  if (done.ok()) done = AddSums(inference.sums);
  if (!done.ok()) return Annotate(Failed(done), "evaluation");
  return inference.score;
}

absl::StatusOr<Score> MeshEvaluation::EvaluateBatches(NextBatch next) {
  Score all;
  absl::Status given;
  const absl::Status done = WithParts([&]() -> absl::Status {
    std::optional<Batch> batch = Batch();
    while (true) {
      if (batch.has_value()) {
        absl::StatusOr<std::optional<Batch>> taken = next();
        if (!taken.ok()) return given = taken.status();
        batch = *std::move(taken);
      }
      const std::optional<int64_t> samples =
          batch.has_value() ? std::optional<int64_t>(batch->size)
                            : std::nullopt;
      TANDEM_ASSIGN_OR_RETURN(const bool goes_on, BeginPass(samples));
      if (!goes_on) return absl::OkStatus();
      if (samples.value_or(0) == 0) continue;
      TANDEM_ASSIGN_OR_RETURN(const Inference inference,
                              Infer(*batch, /*keeps_outputs=*/false));
      TANDEM_RETURN_IF_ERROR(Synchronize());
      TANDEM_RETURN_IF_ERROR(AddSums(inference.sums));
      all += inference.score;
    }
  });
  if (!given.ok()) return given;
  if (!done.ok()) return Annotate(Failed(done), "evaluation");
  return all;
}

absl::StatusOr<at::Tensor> MeshEvaluation::Forward(const Batch& batch) {
  if (batch.size == 0) {
    return absl::InvalidArgumentError("a batch needs at least one sample");
  }
  Inference inference;
  const absl::Status done = WithParts([&]() -> absl::Status {
    TANDEM_RETURN_IF_ERROR(BeginPass(batch.size).status());
    TANDEM_ASSIGN_OR_RETURN(inference, Infer(batch, /*keeps_outputs=*/true));
    return absl::OkStatus();
  });
  if (!done.ok()) return Failed(done);
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
      all.Sum(mine, /*microbatches=*/1, model().groups.scores()));
  return all.sums();
}

absl::StatusOr<Score> MeshEvaluation::Sum(const Score& score) {
  return SumOver(model().groups.scores(), score, [] { return "the loss"; });
}

}  // namespace tandem
