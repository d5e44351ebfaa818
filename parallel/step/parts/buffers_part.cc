// Buffers (running statistics): what replicas have each for themselves of the
// forward passes is made alike before a stage's parameters are updated.

#include "core/base/status_macros.h"
#include "parallel/pipeline/stage/stage.h"
#include "parallel/step/mesh_model.h"
#include "parallel/step/ordered_sums.h"
#include "parallel/step/parts/rows.h"
#include "parallel/strategy/stage/trained_stage.h"

namespace tandem {
namespace {

class BuffersPart : public StepPart {
 public:
  explicit BuffersPart(const MeshModel& model) : model_(model) {}

  absl::Status Begin(StepContext& step) override {
    for (const auto& stage : model_.executor->stages()) {
      if (stage == nullptr || stage->records() == nullptr) continue;
      stage->records()->Begin(step.microbatches);
    }
    return absl::OkStatus();
  }

  absl::Status BeforeUpdate(StepContext& step) override {
    if (!step.updates_last) return absl::OkStatus();
    return model_.OnStages([&](int stage) { return MakeAlike(step, stage); });
  }

  absl::Status Update(const StepContext& step, int stage) override {
    return step.updates_last ? absl::OkStatus() : MakeAlike(step, stage);
  }

 private:
  absl::Status MakeAlike(const StepContext& step, int stage) const {
    if (model_.options.reproducible) return TakeInStatistics(model_, stage);
    if (!step.ends_alike) return absl::OkStatus();
    return model_.stage(stage).ShareBuffers();
  }

  const MeshModel& model_;
};

void DescribeBuffers(const MeshStrategyOptions& options, NamedValues& values) {
  values["ddp.broadcast_buffers"] = SwitchText(options.ddp.broadcast_buffers);
  values["pipeline.defers_statistics"] =
      SwitchText(options.pipeline.defers_statistics);
}

}  // namespace

constexpr StepPartRow kBuffersRow = {"buffers", MakeStepPart<BuffersPart>,
                                     DescribeBuffers};

}  // namespace tandem
