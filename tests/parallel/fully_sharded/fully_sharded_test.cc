// Stages whose replicas share gradients, or parameters as well: what replicas
// that have all come to, in every layout.

#include "parallel/fully_sharded/fully_sharded.h"

#include <ATen/Tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <iostream>
#include <limits>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "parallel/strategy/mesh_strategy.h"
#include "tests/parallel/fully_sharded/sharded_jobs.h"
#include "tests/parallel/strategy/lab_models.h"
#include "tests/parallel/strategy/strategy_lab.h"

namespace tandem::fully_sharded_test {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

const std::vector<ShardedVariant>& Variants() {
  static const auto* const variants = new std::vector<ShardedVariant>{
      {"SgdWithMomentum", "mlp_small",
       [](MeshStrategyOptions& options) {
         SgdOptions sgd;
         sgd.momentum = 0.9;
         options.optimizer = sgd;
       }},
      {"AdamWClippedByNorm", "gpt_tiny_tied",
       [](MeshStrategyOptions& options) {
         AdamWOptions adamw;
         adamw.eps = 1e-2;  // what is nearly 0 decides nothing
         options.optimizer = adamw;
         options.clip_norm = 0.1;
       }},
      {"ClippedByInfinity", "mlp_small",
       [](MeshStrategyOptions& options) {
         options.clip_norm = 0.1;
         options.clip_norm_type = std::numeric_limits<double>::infinity();
       }},
      {"MuonBesideAdamW",
       "gpt_tiny_tied",
       [](MeshStrategyOptions& options) {
         MuonAndAdamW("gpt_tiny_tied", options);
       },
       // It makes all singular values of a matrix alike, the least ones too.
       {/*loss=*/1e-3, /*relative=*/0.02, /*absolute=*/0.02}},
      {"GradScalerAndEma", "mlp_dropout",
       [](MeshStrategyOptions& options) {
         AdamOptions adam;
         adam.eps = 1e-2;
         options.optimizer = adam;
         options.grad_scaler = GradScalerOptions();
         options.ema_decay = 0.9;
       }},
  };
  return *variants;
}

class FullyShardedTest : public testing::TestWithParam<
                             std::tuple<LabLayout, ShardedVariant, Sharding>> {
};

// Where each microbatch's averages are added, sums have another order.
TEST_P(FullyShardedTest, TrainsWhatReplicasThatHaveAllTrain) {
  const auto& [layout, variant, sharding] = GetParam();
  const auto whole = TrainInLab(layout, ShardedJob(variant, Sharding::kOff));
  ASSERT_TRUE(whole.ok()) << whole.status();
  const auto sharded = TrainInLab(layout, ShardedJob(variant, sharding));
  if (layout.microbatches == layout.replicas) {
    ExpectSameBits(sharded, whole);
  } else {
    ExpectClose(sharded, whole, variant.tolerance);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, FullyShardedTest,
    testing::Combine(testing::Values(LabLayout{"Two", "sequential", 2},
                                     LabLayout{"TwoOfOne", "sequential", 2, 1,
                                               1, 1, /*microbatches=*/2},
                                     LabLayout{"Three", "1f1b", 3, 1, 1, 1,
                                               /*microbatches=*/3},
                                     LabLayout{"Pairs", "1f1b", 2, 1, 2},
                                     LabLayout{"OverRanks", "zb_h1", 2, 2, 1}),
                     testing::ValuesIn(Variants()),
                     testing::Values(Sharding::kGradients,
                                     Sharding::kParameters)),
    [](const auto& info) {
      return std::get<0>(info.param).name + std::get<1>(info.param).name +
             (std::get<2>(info.param) == Sharding::kGradients ? "Gradients"
                                                              : "Parameters");
    });

LabJob ReproducibleJob(Sharding sharding, int data_shard = 0) {
  return ShardedJob({"", "gpt_tiny_tied",
                     [=](MeshStrategyOptions& options) {
                       options.optimizer = AdamWOptions();
                       options.clip_norm = 0.5;
                       options.reproducible = true;
                       options.data_shard = data_shard;
                     }},
                    sharding);
}

// The same bits, for gradients are summed in the order of microbatches; and
// where activations are computed again.
TEST(FullyShardedTest, GivesTheSameBitsWhereThatIsAskedFor) {
  const auto alone =
      TrainInLab(LabLayoutNamed("1f1b 1x1x1"), ReproducibleJob(Sharding::kOff));
  ASSERT_TRUE(alone.ok()) << alone.status();
  int layouts = 0;
  for (const LabLayout& layout :
       LabLayouts("1f1b 2x1x1, 1f1b 3x1x1, gpipe 2x1x2, zb_h1 2x2x1, "
                  "zb_v 2x1x2x2, 1f1b 2x1x1 always, 1f1b 2x1x2 except_last")) {
    for (const Sharding sharding :
         {Sharding::kGradients, Sharding::kParameters}) {
      SCOPED_TRACE(layout.name);
      ExpectSameBits(TrainInLab(layout, ReproducibleJob(sharding)), alone);
      ++layouts;
    }
  }
  EXPECT_EQ(layouts, 14);
}

// Also in groups of replicas (HSDP), whose averages are those of all, and over
// Gloo, which sums in an order of its own.
struct GroupRow {
  const char* layout;
  int data_shard;
  bool is_gloo;
};

class GroupsAndGlooTest : public testing::TestWithParam<GroupRow> {};

TEST_P(GroupsAndGlooTest, GiveTheSameBitsWhereThatIsAskedFor) {
  const GroupRow& row = GetParam();
  const auto alone =
      TrainInLab(LabLayoutNamed("1f1b 1x1x1"), ReproducibleJob(Sharding::kOff));
  ASSERT_TRUE(alone.ok()) << alone.status();
  LabLayout layout = LabLayoutNamed(row.layout);
  if (row.is_gloo) layout.backend = "gloo";
  for (const Sharding sharding :
       {Sharding::kOptimizer, Sharding::kGradients, Sharding::kParameters}) {
    SCOPED_TRACE(absl::StrCat(row.layout, " in ", row.data_shard, " over ",
                              layout.backend, " sharding ",
                              static_cast<int>(sharding)));
    ExpectSameBits(
        TrainInLab(layout, ReproducibleJob(sharding, row.data_shard)), alone);
  }
}

// 21 cells.
INSTANTIATE_TEST_SUITE_P(Rows, GroupsAndGlooTest,
                         testing::Values(GroupRow{"1f1b 4x1x1", 2, false},
                                         GroupRow{"1f1b 6x1x1", 3, false},
                                         GroupRow{"gpipe 6x1x1", 2, false},
                                         GroupRow{"zb_h1 4x2x1", 2, false},
                                         GroupRow{"1f1b 4x1x1", 2, true},
                                         GroupRow{"1f1b 3x1x1", 0, true},
                                         GroupRow{"1f1b 2x2x1", 0, true}));

// Replicas in groups, of which each has all (HSDP), seven among them.
TEST(FullyShardedTest, SharesInGroupsOfReplicas) {
  int groups = 0;
  for (const auto& [replicas, shard] : std::vector<std::pair<int, int>>{
           {4, 2}, {6, 3}, {6, 2}, {7, 7}, {4, 1}}) {
    for (const Sharding sharding :
         {Sharding::kOptimizer, Sharding::kGradients, Sharding::kParameters}) {
      SCOPED_TRACE(absl::StrCat(replicas, " ", shard));
      const LabLayout layout = {"",
                                "1f1b",
                                replicas,
                                1,
                                1,
                                1,
                                /*microbatches=*/replicas};
      const auto job = [&, in = shard](Sharding how) {
        return ModelJob("mlp_small", /*size=*/84, /*steps=*/3,
                        [=](MeshStrategyOptions& options) {
                          options.shard = how;
                          options.data_shard = in;
                          options.shard_min_num_params = 1;
                          options.clip_norm = 0.5;
                          AdamWOptions adamw;
                          adamw.eps = 1e-2;
                          options.optimizer = adamw;
                        });
      };
      LabJob shared = job(sharding);
      shared.end = [in = shard, all = replicas](const LabRank& rank) {
        const std::string said = rank.strategy->DescribeSharding();
        EXPECT_THAT(said, StartsWith(absl::StrCat("shared by ", all)));
        if (in > 1 && in < all) {
          EXPECT_THAT(said, HasSubstr(absl::StrCat(" in groups of ", in)));
        } else {
          EXPECT_THAT(said, Not(HasSubstr("in groups")));
        }
        return absl::OkStatus();
      };
      // Sums over groups come after those within one.
      ExpectClose(TrainInLab(layout, shared),
                  TrainInLab(layout, job(Sharding::kOff)));
      ++groups;
    }
  }
  EXPECT_EQ(groups, 15);
}

// The last step of an epoch: replicas with fewer microbatches than others, and
// with none.
TEST(FullyShardedTest, TakesStepsOfWhichSomeReplicasHaveLess) {
  int steps = 0;
  for (const std::string layout :
       {"1f1b 3x1x1", "gpipe 3x1x2", "zb_h1 3x2x1"}) {
    SCOPED_TRACE(layout);
    const auto job = [](Sharding sharding) {
      LabJob made = ShardedJob({"", "mlp_dropout",
                                [](MeshStrategyOptions& options) {
                                  options.uneven_batches = true;
                                  options.microbatch_size = 2;
                                  options.clip_norm = 0.5;
                                }},
                               sharding, /*steps=*/4);
      made.share = [whole = made.batch](int step, int replica) {
        static constexpr int64_t kSizes[][3] = {
            {8, 3, 0}, {8, 8, 8}, {1, 0, 0}, {8, 8, 8}};
        Batch mine = whole(step);
        mine.size = kSizes[step % 4][replica];
        if (mine.size == 0) return Batch();
        mine.inputs = mine.inputs.narrow(0, 8 * replica, mine.size);
        mine.targets = mine.targets.narrow(0, 8 * replica, mine.size);
        return mine;
      };
      made.test = -1;
      return made;
    };
    const auto whole = TrainInLab(LabLayoutNamed(layout), job(Sharding::kOff));
    ASSERT_TRUE(whole.ok()) << whole.status();
    for (const Sharding sharding :
         {Sharding::kGradients, Sharding::kParameters}) {
      ExpectClose(TrainInLab(LabLayoutNamed(layout), job(sharding)), whole);
      ++steps;
    }
  }
  EXPECT_EQ(steps, 6);
}

class ResumedSharesTest : public testing::TestWithParam<Sharding> {};

// What three replicas share, or not, others go on from, sharing or not.
TEST_P(ResumedSharesTest, GoOnInAnyLayout) {
  const auto job = [](int first, int steps, Sharding sharding) {
    LabJob made = ShardedJob({"", "gpt_tiny_tied",
                              [](MeshStrategyOptions& options) {
                                options.optimizer = AdamWOptions();
                                options.ema_decay = 0.9;
                                options.reproducible = true;
                              }},
                             sharding, steps);
    made.batch = [first, inner = made.batch](int step) {
      return inner(first + step);
    };
    made.test = -1;
    return made;
  };
  const auto uninterrupted =
      TrainInLab(LabLayoutNamed("1f1b 1x1x1"), job(0, 6, Sharding::kOff));
  ASSERT_TRUE(uninterrupted.ok()) << uninterrupted.status();
  int resumed = 0;
  const auto first =
      TrainInLab(LabLayoutNamed("1f1b 3x1x1"), job(0, 3, GetParam()));
  ASSERT_TRUE(first.ok()) << first.status();
  for (const LabLayout& layout :
       LabLayouts("1f1b 1x1x1, 1f1b 2x1x1, 1f1b 6x1x1, zb_h1 2x2x1")) {
    for (const Sharding after :
         {Sharding::kOff, Sharding::kGradients, Sharding::kParameters}) {
      SCOPED_TRACE(layout.name);
      LabJob then = job(3, 3, after);
      then.begin = [&](const LabRank& rank) {
        return Resume(*rank.strategy, *first, 3);
      };
      const auto found = TrainInLab(layout, then);
      ASSERT_TRUE(found.ok()) << found.status();
      ExpectSameBits(found->model, uninterrupted->model);
      ExpectSameBits(found->optimizer, uninterrupted->optimizer);
      ++resumed;
    }
  }
  EXPECT_EQ(resumed, 12);
}

INSTANTIATE_TEST_SUITE_P(WholeAndShared, ResumedSharesTest,
                         testing::Values(Sharding::kOff,
                                         Sharding::kParameters));

}  // namespace
}  // namespace tandem::fully_sharded_test
