// ShardedOptimizer in a loop of one's own, with DistributedDataParallel.

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/status_macros.h"
#include "core/checkpoint/fingerprint.h"
#include "parallel/ddp/distributed_data_parallel.h"
#include "parallel/ddp/reducer.h"
#include "parallel/optim/make_optimizer.h"
#include "parallel/sharding/sharded_optimizer.h"
#include "tests/parallel/ddp/fixture.h"

namespace tandem::sharded_optimizer_ddp_test {
namespace {

class ShardedOptimizerDdpTest : public DdpTest {};

DistributedDataParallelOptions Ddp() {
  DistributedDataParallelOptions options;
  options.bucket_cap_mb = 1e-6;  // several buckets
  options.find_unused_parameters = true;
  options.optimizer_group = [](const std::string& name) -> int64_t {
    return name == "b.weight" ? 1 : 0;
  };
  return options;
}

const std::vector<OptimizerOptions>& Groups() {
  static const auto* const groups =
      new std::vector<OptimizerOptions>{AdamWOptions(), AdamOptions()};
  return *groups;
}

std::string Sha(const torch::nn::Module& module) {
  NamedTensors named;
  for (const auto& each : module.named_parameters()) {
    named.emplace_back(each.key(), each.value().detach().cpu());
  }
  return WeightsSha256(named);
}

// Both optimizers over the same steps, of which the second uses one layer
// alone.
absl::Status TrainBoth(Communicator& world, int ranks) {
  TANDEM_ASSIGN_OR_RETURN(auto whole, MakeTwins<TwoLinear>(world, Ddp()));
  TANDEM_ASSIGN_OR_RETURN(auto shared, MakeTwins<TwoLinear>(world, Ddp()));
  TANDEM_ASSIGN_OR_RETURN(
      const std::unique_ptr<Optimizer> of_each,
      MakeGroupedOptimizer(Groups(), whole.ddp->flat_buffers()));
  TANDEM_ASSIGN_OR_RETURN(
      ShardedOptimizer of_all,
      ShardedOptimizer::Create(Groups(), shared.ddp->flat_buffers(), world));
  for (int step = 0; step < 4; ++step) {
    const at::Tensor x = ExampleInput(step, world);
    for (auto* twins : {&whole, &shared}) {
      twins->ddp->ZeroGrad();
      TANDEM_ASSIGN_OR_RETURN(const at::Tensor y,
                              twins->ddp->Forward(x, true, step != 1));
      TANDEM_RETURN_IF_ERROR(twins->ddp->Backward(y.square().sum()));
    }
    of_each->Step(0.01);
    TANDEM_RETURN_IF_ERROR(of_all.Step(0.01));
    EXPECT_EQ(Sha(*shared.module), Sha(*whole.module)) << "step " << step;
    if (step != 2) continue;
    // Saved and loaded.
    TANDEM_ASSIGN_OR_RETURN(const NamedTensors gathered, of_all.GatherState());
    if (world.rank() == 0) {
      EXPECT_EQ(WeightsSha256(gathered), WeightsSha256(of_each->State()));
    } else {
      EXPECT_EQ(gathered.empty(), ranks > 1);
    }
    TANDEM_RETURN_IF_ERROR(of_all.LoadState(of_each->State()));
  }
  EXPECT_FALSE(shared.ddp->reducer().buckets().is_rebuilt() && ranks > 1);
  return absl::OkStatus();
}

TEST_P(ShardedOptimizerDdpTest, StepsAsAnOptimizerOnEveryRank) {
  for (const int ranks : {1, 2, 3, 7}) {
    OnRanks(ranks,
            [&](Communicator& world) { return TrainBoth(world, ranks); });
  }
}

TANDEM_ON_DEVICES_AND_BACKENDS(ShardedOptimizerDdpTest);

}  // namespace
}  // namespace tandem::sharded_optimizer_ddp_test
