// What a rank holds for the optimizer when replicas share it: counted on
// simulated devices.

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "core/base/status_macros.h"
#include "core/device/memory_category.h"
#include "core/sim/memory/memory.h"
#include "core/sim/testing.h"
#include "core/testing/statuses.h"
#include "core/testing/thread_ranks.h"
#include "models/classification_loss.h"
#include "models/mlp.h"
#include "parallel/schedule/schedules.h"
#include "parallel/strategy/mesh_strategy.h"
#include "tests/parallel/strategy/lab_models.h"

namespace tandem::sharded_memory_test {
namespace {

constexpr int64_t kBatch = 6;

int64_t StateInUse(const c10::Device& device) {
  return sim::BooksOf(device.index())
      .now.by_category[static_cast<size_t>(MemoryCategory::kOptimizer)];
}

// Bytes of optimizer state by rank, after two steps.
std::vector<int64_t> StateOf(int ranks, OptimizerSharding sharding) {
  const std::vector<c10::Device> devices = SimDevices(4);
  std::vector<int64_t> bytes(static_cast<size_t>(ranks), -1);
  ExpectOk(RunThreadRanks(ranks, [&](Communicator& world) -> absl::Status {
    const auto rank = static_cast<size_t>(world.rank());
    MeshStrategyOptions options;
    TANDEM_ASSIGN_OR_RETURN(options.schedule, SequentialSchedule(1, 1));
    options.devices = {devices[rank]};
    options.optimizer = AdamOptions();
    options.shard_optimizer = sharding;
    const int64_t before = StateInUse(devices[rank]);
    TANDEM_ASSIGN_OR_RETURN(
        const auto strategy,
        MeshStrategy::Create(LabSpecs("mlp_small"), CrossEntropy, options,
                             &world));
    for (int step = 0; step < 2; ++step) {
      const Batch batch = LabBatch("mlp_small", kBatch, kLabSeed, step);
      TANDEM_RETURN_IF_ERROR(strategy->TrainStep(batch, 0.1).status());
    }
    bytes[rank] = StateInUse(devices[rank]) - before;
    return absl::OkStatus();
  }));
  return bytes;
}

TEST(ShardedMemoryTest, EachReplicaHoldsItsShareOfTheState) {
  const int64_t whole = StateOf(2, OptimizerSharding::kOff)[0];
  ASSERT_GT(whole, 0);
  for (const int ranks : {2, 3, 4}) {
    int64_t all = 0;
    for (const int64_t bytes : StateOf(ranks, OptimizerSharding::kOn)) {
      all += bytes;
      // Two states, each rounded to 64 bytes, in blocks of 64.
      EXPECT_NEAR(static_cast<double>(bytes),
                  static_cast<double>(whole) / ranks, 4 * 64.0)
          << ranks << " replicas";
    }
    EXPECT_NEAR(static_cast<double>(all), static_cast<double>(whole),
                ranks * 4 * 64.0);
  }
}

}  // namespace
}  // namespace tandem::sharded_memory_test
