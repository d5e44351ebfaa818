// Optimizers: gradients are clipped, and parameters stepped.

#include <ATen/core/Tensor.h>

#include <memory>

#include "parallel/schedule/schedule.h"
#include "parallel/step/mesh_model.h"
#include "parallel/step/parts/rows.h"
#include "parallel/strategy/stage/trained_stage.h"

namespace tandem {
namespace {

class OptimizerPart : public StepPart {
 public:
  explicit OptimizerPart(const MeshModel& model) : model_(model) {}

  absl::Status Update(const StepContext& step, int stage) override {
    if (!step.learning_rate.has_value()) return absl::OkStatus();
    TrainedStage& trained = model_.stage(stage);
    // With norms they are clipped already.
    if (!step.norms.has_value()) trained.ClipValues();
    at::Tensor found_inf;
    if (!step.found_inf.empty()) {
      const int device = DeviceOfStage(model_.options.schedule, stage);
      found_inf = step.found_inf[model_.LocalDevice(device)];
    }
    return trained.Update(step.norms, *step.learning_rate, found_inf);
  }

 private:
  const MeshModel& model_;
};

absl::StatusOr<std::unique_ptr<StepPart>> MakeOptimizerPart(MeshModel& model) {
  return std::make_unique<OptimizerPart>(model);
}

}  // namespace

constexpr StepPartRow kOptimizerRow = {"optimizer", MakeOptimizerPart};

}  // namespace tandem
