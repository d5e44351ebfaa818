// Replicas of any layout with uneven inputs.

#include "parallel/strategy/joinable_strategy.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "core/base/status_macros.h"
#include "core/random/random.h"
#include "core/testing/device_types.h"
#include "core/testing/statuses.h"
#include "core/testing/thread_ranks.h"
#include "models/classification_loss.h"
#include "models/layers/basic_layers.h"
#include "parallel/join/join.h"
#include "parallel/strategy/replicated.h"
#include "tests/parallel/strategy/example_job.h"
#include "tests/parallel/strategy/strategy_lab.h"

namespace tandem::joinable_strategy_test {
namespace {

constexpr int64_t kSamples = 4;  // of a replica's batch

LayerSpecs Specs() {
  return {LinearLayer("fc1", 5, 7), ReluLayer("relu"),
          LinearLayer("fc2", 7, 3)};
}

Batch BatchOf(int replica, int i) {
  const at::Generator generator =
      GeneratorFor(5, absl::StrCat("batch ", i, " of ", replica));
  return {at::randn({kSamples, 5}, generator),
          at::randint(3, {kSamples}, generator, at::kLong), kSamples};
}

using Numbers = std::vector<int>;  // of batches, by replica

LabJob Job() {
  LabJob job;
  job.specs = Specs;
  job.loss = CrossEntropy;
  job.change = [](MeshStrategyOptions& options) {
    options.microbatch_size = 2;
    options.uneven_batches = true;
    options.seed = 1;
    options.optimizer = SgdOptions{0.9};
  };
  return job;
}

// Trains in a Join; gives what rank 0 has, and expects the same of all
// replicas.
absl::StatusOr<TensorsByName> TrainedInJoin(const LabLayout& layout,
                                            const Numbers& batches,
                                            const JoinOptions& options) {
  std::vector<TensorsByName> held(static_cast<size_t>(layout.ranks()));
  TANDEM_RETURN_IF_ERROR(
      OnLabRanks(layout, Job(), [&](const LabRank& rank) -> absl::Status {
        auto& strategy = dynamic_cast<MeshStrategy&>(*rank.strategy);
        int step = 0;
        JoinableStrategy joinable(strategy, *rank.world,
                                  [&] { return 0.1 / (1 + step++); });
        TANDEM_ASSIGN_OR_RETURN(Join join, Join::Begin({&joinable}, options));
        const int mine = batches[static_cast<size_t>(rank.replica)];
        for (int i = 0; i < mine; ++i) {
          TANDEM_RETURN_IF_ERROR(join.NotifyBatch());
          TANDEM_RETURN_IF_ERROR(
              strategy.TrainStep(BatchOf(rank.replica, i), 0.1 / (1 + step++))
                  .status());
        }
        TANDEM_RETURN_IF_ERROR(join.Finish());
        EXPECT_EQ(step, *std::max_element(batches.begin(), batches.end()));
        NamedTensors all = strategy.Parameters();
        for (const auto& each : strategy.OptimizerState()) all.push_back(each);
        held[static_cast<size_t>(rank.rank)] = CopiesOf(all);
        return absl::OkStatus();
      }));
  TensorsByName first;
  for (int rank = 0; rank < layout.ranks(); ++rank) {
    const auto& rank_state = held[static_cast<size_t>(rank)];
    ExpectSameBits(rank_state, held[static_cast<size_t>(rank % layout.pipe)]);
    first.insert(rank_state.begin(), rank_state.end());
  }
  return first;
}

// One replica, whose step has the batches of all that have one; the loss of
// each weighs as it should.
TensorsByName Expected(const Numbers& batches, bool by_initial) {
  const LabLayout one = {"one", "gpipe", 1, 1, 1};
  TensorsByName found;
  LabJob job = Job();
  job.change = [](MeshStrategyOptions& options) {
    options.uneven_batches = true;
    options.seed = 1;
    options.optimizer = SgdOptions{0.9};
  };
  const auto replicas = static_cast<double>(batches.size());
  ExpectOk(OnLabRanks(one, job, [&](const LabRank& rank) -> absl::Status {
    const int most = *std::max_element(batches.begin(), batches.end());
    for (int i = 0; i < most; ++i) {
      std::vector<at::Tensor> inputs, targets;
      for (size_t r = 0; r < batches.size(); ++r) {
        if (i >= batches[r]) continue;
        const Batch batch = BatchOf(static_cast<int>(r), i);
        inputs.push_back(batch.inputs);
        targets.push_back(batch.targets);
      }
      const auto present = static_cast<double>(inputs.size());
      const Batch all = {at::cat(inputs), at::cat(targets),
                         kSamples * static_cast<int64_t>(inputs.size())};
      TANDEM_RETURN_IF_ERROR(rank.strategy->ComputeGradients(all).status());
      if (by_initial) {
        for (const auto& each : rank.strategy->Gradients()) {
          each.second.mul_(present / replicas);
        }
      }
      TANDEM_RETURN_IF_ERROR(rank.strategy->Update(0.1 / (1 + i)));
    }
    NamedTensors all = rank.strategy->Parameters();
    for (const auto& each : rank.strategy->OptimizerState()) {
      all.push_back(each);
    }
    found = CopiesOf(all);
    return absl::OkStatus();
  }));
  return found;
}

TEST(JoinableStrategyTest, IsOneReplicaWithTheBatchesOfThoseStillThere) {
  for (const LabLayout& layout :
       LabLayouts("1f1b 2x1x1, gpipe 3x1x1, zb_h1 2x1x2, 1f1b 2x2x1")) {
    for (const bool by_initial : {true, false}) {
      Numbers batches = {4, 1, 2};
      batches.resize(static_cast<size_t>(layout.replicas));
      for (int turn = 0; turn < 2; ++turn) {
        SCOPED_TRACE(absl::StrCat(layout.name, by_initial, turn));
        JoinOptions options;
        options.divide_by_initial_world_size = by_initial;
        const auto found = TrainedInJoin(layout, batches, options);
        ASSERT_TRUE(found.ok()) << found.status();
        const TensorsByName expected = Expected(batches, by_initial);
        ASSERT_EQ(found->size(), expected.size());
        for (const auto& [name, tensor] : expected) {
          EXPECT_TRUE(at::allclose(found->at(name), tensor, 1e-4, 1e-6))
              << name;
        }
        std::reverse(batches.begin(), batches.end());
      }
    }
  }
}

TEST(JoinableStrategyTest, EarlyTerminationLeavesReplicasInStep) {
  JoinOptions options;
  options.throw_on_early_termination = true;
  const LabLayout pairs = {"pairs", "1f1b", 2, 2, 1};
  const auto found = TrainedInJoin(pairs, {1, 3}, options);
  EXPECT_TRUE(IsEarlyTermination(found.status()) ||
              std::string(found.status().message()).find("exhausted") !=
                  std::string::npos)
      << found.status();
}

TEST(JoinableStrategyTest, NeedsUnevenBatches) {
  LabJob job = Job();
  job.change = nullptr;
  ExpectOk(OnLabRanks(
      {"two", "1f1b", 2, 1, 1}, job, [](const LabRank& rank) -> absl::Status {
        auto& strategy = dynamic_cast<MeshStrategy&>(*rank.strategy);
        JoinableStrategy joinable(strategy, *rank.world, [] { return 0.1; });
        EXPECT_THAT(Join::Begin({&joinable}).status(),
                    Says("ask for uneven_batches"));
        return absl::OkStatus();
      }));
}

// Replicas that train apart between two averagings of their parameters.

constexpr int kRanks = 2;

// Parameters are averaged after steps 0, 3, 6.
ReplicatedOptions EveryThirdStep() {
  ReplicatedOptions options;
  options.averaging = ParameterAveragingOptions{3, 0};
  return options;
}

Batch LocalBatch(int step, const Communicator& world) {
  return Share(GlobalBatch(step, 4 * kRanks), world);
}

class LocalSgdTest : public DeviceTypeTest {};

// Rank 1 begins its steps 1 and 2 when rank 0 has ended its own: anything that
// either sent would wait for the other. Gradients are accumulated and buffers
// broadcast as well.
TEST_P(LocalSgdTest, RanksDoNotWaitForEachOtherBetweenTwoAveragings) {
  absl::Notification rank0_is_ahead;
  CommunicatorOptions communication;
  communication.timeout = std::chrono::seconds(10);
  const auto body = [&](Communicator& world) -> absl::Status {
    ReplicatedOptions options = EveryThirdStep();
    options.accumulation_steps = 2;
    options.clip_norm = 1;
    LayerList layers = PlainModel(3);
    layers.insert(layers.begin() + 1, BatchNormLayer("bn", kHidden));
    TANDEM_ASSIGN_OR_RETURN(auto strategy,
                            NewReplicated(std::move(layers), options, world));
    for (int step = 0; step < 5; ++step) {
      if (step == 1 && world.rank() == 1 &&
          !rank0_is_ahead.WaitForNotificationWithTimeout(absl::Seconds(20))) {
        return absl::DeadlineExceededError("rank 0 does not get through");
      }
      TANDEM_RETURN_IF_ERROR(
          strategy->TrainStep(LocalBatch(step, world), 0.1).status());
      if (step == 2 && world.rank() == 0) rank0_is_ahead.Notify();
    }
    return absl::OkStatus();
  };
  ExpectOk(RunThreadRanks(kRanks, body, communication));
}

TEST_P(LocalSgdTest, TheScoreIsThatOfAllRanksWhereParametersAreAveraged) {
  ExpectOk(RunDeviceRanks(kRanks, [](Communicator& world) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(
        auto strategy, NewReplicated(PlainModel(3), EveryThirdStep(), world));
    for (int step = 0; step < 5; ++step) {
      TANDEM_ASSIGN_OR_RETURN(
          const Score score, strategy->TrainStep(LocalBatch(step, world), 0.1));
      EXPECT_EQ(score.count, step % 3 == 0 ? 4 * kRanks : 4);
    }
    return absl::OkStatus();
  }));
}

TANDEM_ON_DEVICE_TYPES(LocalSgdTest);

}  // namespace
}  // namespace tandem::joinable_strategy_test
