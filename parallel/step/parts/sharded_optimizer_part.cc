// Sharded optimizer (ZeRO stage 1): replicas share a stage's update, and tell
// each other the values that they have stepped.

#include <cstdint>
#include <memory>
#include <string>

#include "parallel/sharding/optimizer_sharding.h"
#include "parallel/step/mesh_model.h"
#include "parallel/step/parts/rows.h"
#include "parallel/step/parts/step_parts.h"
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
    return GatherValues(trained.parameters().all(), *trained.sharers(), steps_);
  }

 private:
  const MeshModel& model_;
  int64_t steps_ = 0;  // begun
};

absl::StatusOr<std::unique_ptr<StepPart>> MakeShardedOptimizer(
    MeshModel& model) {
  if (model.options.shard == Sharding::kOff) {
    return std::unique_ptr<StepPart>();
  }
  return std::make_unique<ShardedOptimizerPart>(model);
}

void DescribeShardedOptimizer(const MeshStrategyOptions& options,
                              NamedValues& values) {
  values["shard"] = Word(options.shard);
}

constexpr char kMoves[] =
    "$0 needs parameters that stay in their places and are updated together, "
    "which $2 does not give: leave one of them out";

constexpr Exclusion kShardedOptimizerExcludes[] = {
    {"averaging",
     [](const MeshStrategyOptions& options) {
       return options.averaging.has_value();
     },
     "averaging, with which replicas train apart", "average_parameters_every",
     kMoves},
    {"ddp.static_graph",
     [](const MeshStrategyOptions& options) {
       return options.ddp.static_graph;
     },
     "ddp.static_graph, which moves parameters after the first step",
     "static_graph", kMoves},
    {"ddp.skip_all_reduce_unused_params",
     [](const MeshStrategyOptions& options) {
       return options.ddp.skip_all_reduce_unused_params;
     },
     "ddp.skip_all_reduce_unused_params, which moves parameters after the "
     "first step",
     "skip_all_reduce_unused_params", kMoves},
    {"compares_replicas",
     [](const MeshStrategyOptions& options) {
       return options.compares_replicas;
     },
     "comparing replicas, which its owners' values make alike in each step, "
     "corrupted or not",
     "check_replicas_every",
     "$1 compares replicas, which $0 makes alike in each step, for the owner "
     "of a parameter sends its values, corrupted or not: leave one out"},
};

}  // namespace

constexpr StepPartRow kShardedOptimizerRow = {
    "sharded_optimizer",
    MakeShardedOptimizer,
    DescribeShardedOptimizer,
    nullptr,
    {[](const MeshStrategyOptions& options) {
       return options.shard != Sharding::kOff &&
              options.shard != Sharding::kAuto;
     },
     "shard excludes ", "; leave one of them out", kShardedOptimizerExcludes,
     "shard=optimizer|gradients|parameters"}};

std::string ExcludesSharding(const MeshStrategyOptions& options) {
  const Exclusion* const given = FirstGiven(kShardedOptimizerExcludes, options);
  return given == nullptr ? "" : given->what;
}

}  // namespace tandem
