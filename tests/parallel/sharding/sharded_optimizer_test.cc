// Replicas that share the optimizer: the bits of replicas that do not, in every
// layout, and state that any number of replicas goes on from.

#include "parallel/sharding/sharded_optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/checkpoint/fingerprint.h"
#include "parallel/comm_hooks/compression_hooks.h"
#include "parallel/ddp/distributed_data_parallel.h"
#include "parallel/ddp/reducer.h"
#include "parallel/optim/make_optimizer.h"
#include "parallel/strategy/mesh_strategy.h"
#include "tests/parallel/ddp/fixture.h"
#include "tests/parallel/strategy/lab_models.h"
#include "tests/parallel/strategy/strategy_lab.h"

namespace tandem::sharded_optimizer_test {
namespace {

using testing::HasSubstr;

constexpr int64_t kBatch = 24;  // of all replicas

struct Variant {
  std::string name;
  std::string model;
  LabChange change;
};

const std::vector<Variant>& Variants() {
  static const auto* const variants = new std::vector<Variant>{
      {"SgdWithMomentum", "mlp_small",
       [](MeshStrategyOptions& options) {
         SgdOptions sgd;
         sgd.momentum = 0.9;
         options.optimizer = sgd;
       }},
      {"AdamWClippedByNorm", "gpt_tiny_tied",
       [](MeshStrategyOptions& options) {
         options.optimizer = AdamWOptions();
         options.clip_norm = 0.1;
       }},
      {"AmsgradInGroupsWithHook", "mlp_dropout",
       [](MeshStrategyOptions& options) {
         AdamOptions adam;
         adam.amsgrad = true;
         options.optimizer = adam;
         options.further_optimizers = {AdamWOptions()};
         options.optimizer_group = [](const std::string& name) -> int64_t {
           return name.find("bias") == std::string::npos ? 0 : 1;
         };
         options.make_hook = [] { return Bf16CompressHook(); };
       }},
      {"MuonBesideAdamW", "gpt_tiny_tied",
       [](MeshStrategyOptions& options) {
         MuonAndAdamW("gpt_tiny_tied", options);
       }},
      {"Reproducible", "gpt_tiny_tied",
       [](MeshStrategyOptions& options) {
         options.optimizer = AdamOptions();
         options.reproducible = true;
       }},
      {"FindUnusedAndGradScaler", "mlp_small",
       [](MeshStrategyOptions& options) {
         options.optimizer = AdamOptions();
         options.ddp.find_unused_parameters = true;
         options.grad_scaler = GradScalerOptions();
       }},
  };
  return *variants;
}

LabJob Job(const Variant& variant, bool shards, int steps = 4) {
  return ModelJob(variant.model, kBatch, steps,
                  [=](MeshStrategyOptions& options) {
                    options.ddp.bucket_cap_mb = 1.0 / 1024;  // several buckets
                    if (shards) {
                      options.shard = Sharding::kOptimizer;
                    }
                    variant.change(options);
                  });
}

class ShardedOptimizerTest
    : public testing::TestWithParam<std::tuple<LabLayout, Variant>> {};

TEST_P(ShardedOptimizerTest, GivesTheBitsOfAWholeOne) {
  const auto& [layout, variant] = GetParam();
  LabJob job = Job(variant, /*shards=*/true);
  job.end = [](const LabRank& rank) {
    EXPECT_THAT(rank.strategy->DescribeSharding(), HasSubstr("shared by"));
    EXPECT_TRUE(rank.strategy->OptimizerState().empty());
    return absl::OkStatus();
  };
  const auto whole = TrainInLab(layout, Job(variant, /*shards=*/false));
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_FALSE(whole->optimizer.empty());
  ExpectSameBits(TrainInLab(layout, job), whole);
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, ShardedOptimizerTest,
    testing::Combine(testing::Values(LabLayout{"Ddp", "sequential", 2},
                                     LabLayout{"DdpOfThree", "1f1b", 3},
                                     LabLayout{"DdpOfSix", "gpipe", 6},
                                     LabLayout{"Pairs", "1f1b", 2, 1, 2},
                                     LabLayout{"OverRanks", "zb_h1", 2, 2, 1}),
                     testing::ValuesIn(Variants())),
    [](const auto& info) {
      return std::get<0>(info.param).name + std::get<1>(info.param).name;
    });

LabJob ReproducibleJob(int first, int steps) {
  LabJob job = ModelJob("gpt_tiny_tied", kBatch, steps,
                        [](MeshStrategyOptions& options) {
                          options.optimizer = AdamWOptions();
                          options.reproducible = true;
                          options.shard = Sharding::kOptimizer;
                        });
  job.batch = [first, inner = job.batch](int step) {
    return inner(first + step);
  };
  return job;
}

// What three replicas share, other numbers of them go on from.
TEST(ShardedOptimizerStateTest, AnyNumberOfReplicasGoesOn) {
  const auto uninterrupted = TrainInLab({"one"}, ReproducibleJob(0, 6));
  ASSERT_TRUE(uninterrupted.ok()) << uninterrupted.status();
  const auto first = TrainInLab({"three", "1f1b", 3}, ReproducibleJob(0, 3));
  ASSERT_TRUE(first.ok()) << first.status();
  int resumed = 0;
  for (const LabLayout& layout :
       LabLayouts("1f1b 1x1x1, 1f1b 2x1x1, 1f1b 6x1x1, 1f1b 2x2x1")) {
    SCOPED_TRACE(layout.name);
    LabJob job = ReproducibleJob(3, 3);
    job.begin = [&](const LabRank& rank) {
      return Resume(*rank.strategy, *first, 3);
    };
    const auto found = TrainInLab(layout, job);
    ASSERT_TRUE(found.ok()) << found.status();
    ExpectSameBits(found->model, uninterrupted->model);
    ExpectSameBits(found->optimizer, uninterrupted->optimizer);
    ++resumed;
  }
  EXPECT_EQ(resumed, 4);
}

TEST(ShardedOptimizerStateTest, SevenReplicasGiveTheBitsOfAWholeOne) {
  const LabLayout layout = {"DdpOfSeven", "1f1b", 7};
  const auto job = [](Sharding sharding) {
    return ModelJob("mlp_small", /*batch=*/28, /*steps=*/4,
                    [=](MeshStrategyOptions& options) {
                      options.optimizer = AdamWOptions();
                      options.shard = sharding;
                    });
  };
  const auto whole = TrainInLab(layout, job(Sharding::kOff));
  ASSERT_TRUE(whole.ok()) << whole.status();
  ExpectSameBits(TrainInLab(layout, job(Sharding::kOptimizer)), whole);
}

// A job that takes a step in halves sees all gradients in between; any other
// has those of each replica's own share reduced alone.
TEST(ShardedOptimizerStateTest, GradientsAreWholeForWhoSeesThem) {
  const LabLayout layout = {"Ddp", "sequential", 2};
  std::vector<TensorsByName> after(2), between(2);
  LabJob job = Job(Variants()[0], /*shards=*/true, /*steps=*/2);
  job.step = [&](const LabRank& rank, const Batch& batch,
                 int step) -> absl::StatusOr<Score> {
    if (step == 0) {
      const auto score = rank.strategy->TrainStep(batch, 0.1);
      after[rank.rank] = CopiesOf(rank.strategy->Gradients());
      return score;
    }
    TANDEM_ASSIGN_OR_RETURN(const Score score,
                            rank.strategy->ComputeGradients(batch));
    between[rank.rank] = CopiesOf(rank.strategy->Gradients());
    TANDEM_RETURN_IF_ERROR(rank.strategy->Update(0.1));
    return score;
  };
  ASSERT_TRUE(TrainInLab(layout, job).ok());
  ASSERT_FALSE(between[0].empty());
  ExpectSameBits(between[0], between[1]);
  int different = 0;
  for (const auto& [name, gradient] : after[0]) {
    different += !gradient.equal(after[1].at(name));
  }
  EXPECT_GT(different, 0);
}

// Each replica's own parameters are its own to step.
TEST(ShardedOptimizerStateTest, IgnoredParametersAreNotShared) {
  std::string name;
  const LabLayout layout = {"Ddp", "sequential", 2};
  LabJob probe = ModelJob("mlp_small", kBatch, 1);
  probe.end = [&](const LabRank& rank) {
    if (rank.rank == 0) name = rank.strategy->Parameters()[1].first;
    return absl::OkStatus();
  };
  ASSERT_TRUE(TrainInLab(layout, probe).ok());
  const Variant named = {"Ignored", "mlp_small",
                         [&](MeshStrategyOptions& options) {
                           options.optimizer = AdamOptions();
                           options.ddp.parameters_to_ignore = {name};
                         }};
  const auto whole = TrainInLab(layout, Job(named, false));
  const auto shared = TrainInLab(layout, Job(named, true));
  ASSERT_TRUE(whole.ok()) << whole.status();
  ExpectSameBits(shared, whole);
  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE(shared->held[rank].at(name).equal(whole->held[rank].at(name)));
    EXPECT_EQ(shared->held[rank].count(name + ".exp_avg"), 1u);
  }
}

TEST(ShardedOptimizerOptionsTest, WhatExcludesItIsNamed) {
  const std::vector<std::pair<std::string, LabChange>> changes = {
      {"averaging",
       [](MeshStrategyOptions& options) {
         options.averaging = ParameterAveragingOptions{2, 0};
       }},
      {"static_graph",
       [](MeshStrategyOptions& options) { options.ddp.static_graph = true; }},
      {"skip_all_reduce_unused_params",
       [](MeshStrategyOptions& options) {
         options.ddp.skip_all_reduce_unused_params = true;
       }},
  };
  const LabLayout layout = {"Ddp", "sequential", 2};
  for (const auto& [option, change] : changes) {
    const Variant variant = {option, "mlp_small", change};
    const auto refused = TrainInLab(layout, Job(variant, /*shards=*/true));
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(refused.status().ToString(), HasSubstr("shard excludes"));
    EXPECT_THAT(refused.status().ToString(), HasSubstr(option));
    // Left to choose, it gives way.
    const Variant left = {option, "mlp_small",
                          [change = change](MeshStrategyOptions& options) {
                            change(options);
                            options.shard = Sharding::kAuto;
                          }};
    LabJob job = Job(left, /*shards=*/false, /*steps=*/2);
    job.end = [option = option](const LabRank& rank) {
      EXPECT_THAT(rank.strategy->DescribeSharding(), HasSubstr(option));
      return absl::OkStatus();
    };
    const auto done = TrainInLab(layout, job);
    EXPECT_TRUE(done.ok()) << done.status();
  }
}

// ShardedOptimizer in a loop of one's own, with DistributedDataParallel.

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
}  // namespace tandem::sharded_optimizer_test
