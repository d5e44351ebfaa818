// Sharded optimizer (ZeRO stage 1): replicas share a stage's update, and tell
// each other the values that they have stepped.

#include <cstdint>
#include <memory>

#include "parallel/sharding/optimizer_sharding.h"
#include "parallel/sharding/share_exchange.h"
#include "parallel/step/mesh_model.h"
#include "parallel/step/parts/rows.h"
#include "parallel/strategy/stage/trained_stage.h"

namespace tandem {
namespace {

// Which stages share is their own choice (ChooseSharding).
class ShardedOptimizerPart : public StepPart {
 public:
  explicit ShardedOptimizerPart(const MeshModel& model) : model_(model) {}

  absl::Status Begin(StepContext& step) override {
    ++steps_;
    return absl::OkStatus();
  }

  absl::Status Update(const StepContext& step, int stage) override {
    const TrainedStage& trained = model_.stage(stage);
    if (!step.learning_rate.has_value() || !trained.sharding().shards) {
      return absl::OkStatus();
    }
    return GatherValues(trained.all(), *trained.replicas(), steps_);
  }

 private:
  const MeshModel& model_;
  int64_t steps_ = 0;  // begun
};

absl::StatusOr<std::unique_ptr<StepPart>> MakeShardedOptimizer(
    MeshModel& model) {
  if (model.options.shard_optimizer == OptimizerSharding::kOff) {
    return std::unique_ptr<StepPart>();
  }
  return std::make_unique<ShardedOptimizerPart>(model);
}

}  // namespace

constexpr StepPartRow kShardedOptimizerRow = {"sharded_optimizer",
                                              MakeShardedOptimizer};

}  // namespace tandem
