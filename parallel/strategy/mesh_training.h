// Training by a mesh strategy: the driver of its steps, each of which is the
// engine's forward and backward, and a list of parts.

#ifndef TANDEM_PARALLEL_STRATEGY_MESH_TRAINING_H_
#define TANDEM_PARALLEL_STRATEGY_MESH_TRAINING_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/model/batch.h"
#include "parallel/step/mesh_model.h"
#include "parallel/step/mesh_strategy_options.h"
#include "parallel/step/step_part.h"
#include "parallel/step/step_score.h"
#include "parallel/strategy/mesh_evaluation.h"

namespace tandem {

// FailedPrecondition for halves that do not follow each other (see
// Strategy::ComputeGradients). Not thread-safe.
class StepHalves {
 public:
  absl::Status CheckFirst() const {
    if (!has_gradients_) return absl::OkStatus();
    return absl::FailedPreconditionError(
        "the gradients of the step before are still there: Update or "
        "SkipUpdate comes first");
  }

  void EndFirst() { has_gradients_ = true; }

  absl::Status BeginSecond() {
    if (!has_gradients_) {
      return absl::FailedPreconditionError(
          "there are no gradients: ComputeGradients comes first");
    }
    has_gradients_ = false;
    return absl::OkStatus();
  }

 private:
  bool has_gradients_ = false;
};

// A step is planned, computed and finished, and read later: see StepPart, whose
// points these are. Techniques are parts (parallel/step/parts).
class MeshTraining : public MeshEvaluation {
 public:
  // `model` is complete, and `parts` have started with it.
  MeshTraining(std::unique_ptr<MeshModel> model, StepPartList parts)
      : MeshEvaluation(std::move(model), std::move(parts)) {}

  absl::StatusOr<Score> TrainStep(const Batch& batch,
                                  double learning_rate) override;
  absl::Status SubmitStep(const Batch& batch, double learning_rate) override;
  absl::StatusOr<std::vector<StepScore>> TakeScores() override;
  void MeasureGradientNorm() override { measures_norm_ = true; }
  absl::StatusOr<Score> ComputeGradients(const Batch& batch) override;
  absl::Status Update(double learning_rate) override;
  absl::Status SkipUpdate() override;
  absl::StatusOr<bool> EndBrokenStep() override;

  std::map<std::string, double> AuxiliaryLosses() const override;
  std::map<std::string, double> NamedSums() const override;
  LossScale* loss_scale() override;
  void SetMeanWeight(MeanWeight mean) override;
  absl::Status SetUnevenDivision(UnevenDivision division) override;
  UnevenDivision uneven_division() const override;
  void ResumeAt(int64_t steps) override;
  absl::Status Synchronise() override;

 private:
  absl::Status SecondHalf(std::optional<double> learning_rate);
  // What a failed step leaves behind is no use to the other ranks: they hear of
  // it.
  absl::Status OrAbort(absl::Status done);
  // Asks all parts what the next step is to be; none while one is half done.
  absl::StatusOr<StepContext> Plan() const;
  // Up to gradients that are complete, or to updated parameters where devices
  // update at once.
  absl::Status Compute(const Batch& batch, StepContext& step);
  // Up to the step's end.
  absl::Status Finish(StepContext& step);
  absl::Status UpdateDevices(const StepContext& step);
  // Reads all pending steps.
  absl::Status ReadPending();
  absl::Status ReadOrAbort();
  // The last one's score, which nobody else takes.
  absl::StatusOr<Score> ReadLast();

  int64_t steps_ = 0;           // done
  bool measures_norm_ = false;  // of the step under way, or the next
  StepHalves halves_;
  std::optional<StepContext> halved_;  // the step that is done in halves
  std::optional<StepContext> broken_;  // one that needs no other rank to end
  std::vector<PendingStep> pending_;
  std::vector<StepScore> scores_;  // read, and not taken
  StepScore last_;                 // of the last step that was read
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_STRATEGY_MESH_TRAINING_H_
