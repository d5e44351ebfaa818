// Joinable strategy: replicas of any layout, pipelines too, with uneven inputs
// (Join).

#ifndef TANDEM_PARALLEL_STRATEGY_JOINABLE_STRATEGY_H_
#define TANDEM_PARALLEL_STRATEGY_JOINABLE_STRATEGY_H_

#include <functional>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "core/comm/communicator.h"
#include "parallel/join/join_hook.h"
#include "parallel/strategy/mesh_strategy.h"

namespace tandem {

// An iteration is one TrainStep. A replica that has ended takes its steps
// without samples: its stages take part in every collective of the others' and
// update as they do, so that all replicas have the same bits, and there is
// nothing to be sent at the end. Gradients are divided as JoinOptions say, and
// not by samples. Ranks of one replica end together.
//
//   JoinableStrategy joinable(*strategy, world, [&] { return learning_rate; });
//   TANDEM_ASSIGN_OR_RETURN(Join join, Join::Begin({&joinable}, options));
//
// Needs MeshStrategyOptions::uneven_batches. Not thread-safe.
class JoinableStrategy : public Joinable {
 public:
  // All of these must outlive this. `world` is the strategy's; `learning_rate`
  // gives that of the step to come, on ranks that have ended, too.
  JoinableStrategy(MeshStrategy& strategy, Communicator& world,
                   std::function<double()> learning_rate)
      : strategy_(strategy),
        world_(world),
        learning_rate_(std::move(learning_rate)) {}

  // Errors: MeshStrategy::SetUnevenDivision's.
  absl::StatusOr<std::unique_ptr<JoinHook>> MakeJoinHook(
      const JoinOptions& options) override;
  Communicator& join_group() override { return world_; }

 private:
  MeshStrategy& strategy_;
  Communicator& world_;
  const std::function<double()> learning_rate_;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_STRATEGY_JOINABLE_STRATEGY_H_
