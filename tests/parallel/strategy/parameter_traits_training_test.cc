// What a layer says of its parameters reaches their training, in DDP and in the
// hybrid alike.

#include <ATen/Tensor.h>
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "core/model/layer_list.h"
#include "models/classification_loss.h"
#include "parallel/strategy/replicated.h"
#include "tests/parallel/matrix/matrix_problem.h"
#include "tests/parallel/strategy/lab_models.h"
#include "tests/parallel/strategy/strategy_lab.h"

namespace tandem::parameter_traits_training_test {
namespace {

using ::testing::HasSubstr;

constexpr char kParameter[] = "fc1.weight";

LayerSpecs Specs(const ParameterTraits& traits) {
  LayerSpecs specs = LabSpecs("mlp_small");
  for (LayerSpec& spec : specs) {
    if (absl::StrCat(spec.name, ".weight") == kParameter) {
      spec.traits["weight"] = traits;
    }
  }
  return specs;
}

Batch BatchOf(int replica) {
  return RandomBatch({{6}, 5}, /*size=*/8, /*seed=*/3, replica);
}

// One step of two replicas, each on its own batch: of DDP, or of hybrids, whose
// two stages are on two devices of each rank. `alike`, if not null: what they
// have alike.
absl::StatusOr<LabOutcome> Train(bool hybrid, const LayerSpecs& specs,
                                 const UpdateOptions& update,
                                 TensorsByName* alike = nullptr) {
  LabLayout layout = {"", "1f1b", 2, 1, hybrid ? 2 : 1};
  layout.microbatches = 4;
  LabJob job;
  job.specs = [&] { return specs; };
  job.loss = CrossEntropy;
  job.change = [&](MeshStrategyOptions& options) {
    static_cast<UpdateOptions&>(options) = update;
    options.seed = 7;
  };
  if (!hybrid) {
    job.make = [&](Communicator* world) {
      ReplicatedOptions options;
      static_cast<UpdateOptions&>(options) = update;
      return MakeReplicated(MakeLayers(specs, 7), CrossEntropy, options,
                            *world);
    };
  }
  job.share = [](int, int replica) { return BatchOf(replica); };
  job.steps = 1;
  job.end = [alike](const LabRank& rank) {
    if (alike != nullptr && rank.rank == 0) {
      *alike = CopiesOf(rank.strategy->AlikeParameters());
    }
    return absl::OkStatus();
  };
  return TrainInLab(layout, job);
}

class ParameterTraitsTrainingTest : public testing::TestWithParam<bool> {};

TEST_P(ParameterTraitsTrainingTest, WithoutDataEachReplicaTrainsItsOwn) {
  ParameterTraits own;
  own.reduce_axes.clear();
  const auto all = Train(GetParam(), Specs({}), {});
  ASSERT_TRUE(all.ok()) << all.status();
  TensorsByName alike;
  const auto some = Train(GetParam(), Specs(own), {}, &alike);
  ASSERT_TRUE(some.ok()) << some.status();
  ASSERT_EQ(some->held[0].count(kParameter), 1u);
  // The model has no buffers.
  EXPECT_EQ(alike.size(), some->held[0].size() - 1);
  EXPECT_EQ(alike.count(kParameter), 0u);
  for (const auto& [name, tensor] : some->held[0]) {
    EXPECT_TRUE(all->held[0].at(name).equal(all->held[1].at(name)));
    EXPECT_EQ(tensor.equal(some->held[1].at(name)), name != kParameter) << name;
  }
  // Both began alike: on average they went where the whole batch would.
  const at::Tensor mean =
      (some->held[0].at(kParameter) + some->held[1].at(kParameter)) / 2;
  EXPECT_TRUE(mean.allclose(all->held[0].at(kParameter), 1e-5, 1e-7));
}

TEST_P(ParameterTraitsTrainingTest, ItsGroupHasItsOwnOptimizer) {
  ParameterTraits decayed;
  decayed.optimizer_group = 1;
  UpdateOptions update;
  SgdOptions decay;
  decay.weight_decay = 0.5;
  update.further_optimizers = {decay};
  const auto by_trait = Train(GetParam(), Specs(decayed), update);
  ASSERT_TRUE(by_trait.ok()) << by_trait.status();
  update.optimizer_group = [](const std::string& name) -> int64_t {
    return name == kParameter ? 1 : 0;
  };
  const auto by_name = Train(GetParam(), Specs({}), update);
  ASSERT_TRUE(by_name.ok()) << by_name.status();
  const auto without = Train(GetParam(), Specs({}), {});
  for (const auto& [name, tensor] : by_trait->held[0]) {
    EXPECT_TRUE(tensor.equal(by_name->held[0].at(name))) << name;
    EXPECT_EQ(tensor.equal(without->held[0].at(name)), name != kParameter)
        << name;
  }
}

TEST_P(ParameterTraitsTrainingTest, WhatNoStrategyDoesIsRefusedByName) {
  ParameterTraits sharded;
  sharded.shard = ParameterShard{"data", 0};
  EXPECT_THAT(Train(GetParam(), Specs(sharded), {}).status().ToString(),
              HasSubstr("fc1.weight is sharded along data"));
  ParameterTraits elsewhere;
  elsewhere.reduce_axes = {"tensor"};
  EXPECT_THAT(Train(GetParam(), Specs(elsewhere), {}).status().ToString(),
              HasSubstr("fc1.weight has a trait along axis 'tensor'"));
}

INSTANTIATE_TEST_SUITE_P(Strategies, ParameterTraitsTrainingTest,
                         testing::Values(false, true), [](const auto& info) {
                           return info.param ? "Hybrid" : "Ddp";
                         });

}  // namespace
}  // namespace tandem::parameter_traits_training_test
