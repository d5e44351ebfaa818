// Parameters that replicas share, gathered by the schedule's actions, and as
// copies in the computing dtype; and what the flight record says of it.

#include <ATen/Tensor.h>
#include <c10/util/accumulate.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/flight/dump.h"
#include "parallel/strategy/mesh_strategy.h"
#include "tests/core/testing/recorded_flights.h"
#include "tests/parallel/fully_sharded/sharded_jobs.h"
#include "tests/parallel/strategy/lab_models.h"
#include "tests/parallel/strategy/strategy_lab.h"

namespace tandem::gathered_parameters_test {
namespace {

using ::testing::IsSupersetOf;

class GatheredStagesTest : public testing::TestWithParam<std::string> {};

// Stages are gathered by the schedule's actions, all of a device at a time or
// one: in the end as by layers, in steps of which some replicas have less, too,
// and between them in evaluation.
TEST_P(GatheredStagesTest, GiveTheBitsOfGatheredLayers) {
  const LabLayout layout = LabLayoutNamed(GetParam());
  const auto job = [](bool reshards, int most, bool uneven) {
    LabJob made = ShardedJob({"", "gpt_tiny_tied",
                              [=](MeshStrategyOptions& options) {
                                options.reshard_after_forward = reshards;
                                options.pipeline.max_unsharded_stages = most;
                                options.uneven_batches = uneven;
                                if (uneven) options.microbatch_size = 2;
                                options.clip_norm = 0.5;
                                options.optimizer = AdamWOptions();
                              }},
                             Sharding::kParameters, /*steps=*/3);
    if (!uneven) return made;
    made.share = [whole = made.batch](int step, int replica) {
      Batch mine = whole(step);
      mine.size = replica == 0 ? 8 : step % 2;
      if (mine.size == 0) return Batch();
      mine.inputs = mine.inputs.narrow(0, 8 * replica, mine.size);
      mine.targets = mine.targets.narrow(0, 8 * replica, mine.size);
      return mine;
    };
    return made;
  };
  int cells = 0;
  for (const bool uneven : {false, true}) {
    const auto layers = TrainInLab(layout, job(true, 0, uneven));
    ASSERT_TRUE(layers.ok()) << layers.status();
    for (const int most : {0, 1}) {
      SCOPED_TRACE(absl::StrCat(uneven, " ", most));
      ExpectSameBits(TrainInLab(layout, job(false, most, uneven)), layers);
      ++cells;
    }
  }
  EXPECT_EQ(cells, 4);
}

INSTANTIATE_TEST_SUITE_P(Layouts, GatheredStagesTest,
                         testing::Values("1f1b 2x1x1", "gpipe 3x1x2",
                                         "zb_h1 2x2x1", "zb_v 2x1x2x2",
                                         "interleaved_1f1b 2x1x2x2",
                                         "1f1b 2x1x2 except_last"));

// How many elements the ranks gather by all-gathers while `run` runs, by dtype.
std::map<std::string, int64_t> GatheredIn(const std::function<void()>& run) {
  std::map<std::string, int64_t> elements;
  for (const FlightEntry& each : RecordedFlights(run).entries) {
    if (each.operation != "all-gather") continue;
    elements[each.dtype] += c10::multiply_integers(each.sizes);
  }
  return elements;
}

class GatheredCopiesTest
    : public testing::TestWithParam<std::tuple<std::string, std::string>> {};

// Weights of linear layers are gathered in half the bytes, once a step or for
// each use; the same bits as where every replica converts all of them.
TEST_P(GatheredCopiesTest, AreThoseThatEveryReplicaWouldMake) {
  const LabLayout layout = LabLayoutNamed(std::get<0>(GetParam()));
  const auto job = [&](Sharding sharding, std::optional<at::ScalarType> dtype,
                       bool reshards) {
    return ShardedJob({"", std::get<1>(GetParam()),
                       [=](MeshStrategyOptions& options) {
                         options.ddp.mixed_precision.param_dtype = dtype;
                         options.reshard_after_forward = reshards;
                         options.optimizer = AdamWOptions();
                         options.ema_decay = 0.9;
                         options.reproducible = true;
                       }},
                      sharding, /*steps=*/2);
  };
  const auto whole =
      TrainInLab(layout, job(Sharding::kOff, at::kBFloat16, true));
  ASSERT_TRUE(whole.ok()) << whole.status();
  int64_t once = 0;
  for (const bool reshards : {false, true}) {
    auto low = GatheredIn([&] {
      ExpectSameBits(TrainInLab(layout, job(Sharding::kParameters,
                                            at::kBFloat16, reshards)),
                     whole);
    });
    auto full = GatheredIn([&] {
      const auto trained = TrainInLab(
          layout, job(Sharding::kParameters, std::nullopt, reshards));
      EXPECT_TRUE(trained.ok()) << trained.status();
    });
    EXPECT_GT(low["BFloat16"], 0);
    EXPECT_EQ(full["BFloat16"], 0);
    EXPECT_EQ(full["Float"], low["Float"] + low["BFloat16"]);
    if (!reshards) once = low["BFloat16"];
    if (reshards) EXPECT_GT(low["BFloat16"], once);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, GatheredCopiesTest,
    testing::Combine(testing::Values("1f1b 2x1x1", "zb_h1 2x1x2"),
                     testing::Values("gpt_tiny", "gpt_tiny_tied",
                                     "mlp_small")));

// A hang says so: whose parameters or gradients ranks wait for.
TEST(ShardFlightsTest, SayOfWhichUnitTheyAre) {
  std::set<std::string> parameters, gradients;
  for (int i = 1; i <= 8; ++i) {
    const std::string unit = absl::StrCat(
        "layers ", i == 1 ? "flatten" : absl::StrCat("relu", i - 1), " to fc",
        i);
    parameters.insert("parameters of " + unit);
    gradients.insert("gradients of " + unit);
  }
  parameters.insert("how much each replica evaluates");
  gradients.insert("which parameters have a gradient");
  const auto purposes = [](const std::string& layout, int data_shard) {
    LabJob job = ShardedJob({"", "mlp_small",
                             [=](MeshStrategyOptions& options) {
                               options.data_shard = data_shard;
                               options.ddp.find_unused_parameters = true;
                             }},
                            Sharding::kParameters, /*steps=*/2);
    return PurposesByGroup(RecordedFlights([&] {
      const auto trained = TrainInLab(LabLayoutNamed(layout), job);
      EXPECT_TRUE(trained.ok()) << trained.status();
    }));
  };
  auto all = purposes("1f1b 2x1x1", 0);
  EXPECT_EQ(all["gathering shards of stage 0"], parameters);
  EXPECT_THAT(all["world"], IsSupersetOf(gradients));
  auto pairs = purposes("1f1b 4x1x1", 2);
  EXPECT_EQ(pairs["gathering shards of stage 0"], parameters);
  EXPECT_EQ(pairs["shards of stage 0"], gradients);
  EXPECT_EQ(pairs["copies of a shard of stage 0"], gradients);
}

}  // namespace
}  // namespace tandem::gathered_parameters_test
