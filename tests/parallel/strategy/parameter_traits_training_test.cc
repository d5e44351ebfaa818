// What a layer says of its parameters reaches their training, in DDP and in the
// hybrid alike.

#include <ATen/Tensor.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "core/base/status_macros.h"
#include "core/model/layer_list.h"
#include "core/random/random.h"
#include "core/testing/thread_ranks.h"
#include "models/classification_loss.h"
#include "models/registry.h"
#include "parallel/balance/cut.h"
#include "parallel/schedule/schedules.h"
#include "parallel/strategy/mesh_strategy.h"
#include "parallel/strategy/replicated.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

constexpr char kParameter[] = "fc1.weight";

LayerSpecs Specs(const ParameterTraits& traits) {
  ModelOptions model;
  model.name = "mlp_small";
  model.classes = 5;
  model.input_shape = {6};
  LayerSpecs specs = *MakeModel(model);
  for (LayerSpec& spec : specs) {
    if (absl::StrCat(spec.name, ".weight") == kParameter) {
      spec.traits["weight"] = traits;
    }
  }
  return specs;
}

Batch BatchOf(int replica) {
  const at::Generator generator =
      GeneratorFor(3, absl::StrCat("batch ", replica));
  return {at::randn({8, 6}, generator),
          at::randint(5, {8}, generator, at::kLong), 8};
}

using Make = std::function<absl::StatusOr<std::unique_ptr<Strategy>>(
    const LayerSpecs& specs, const UpdateOptions& update, Communicator& world)>;

absl::StatusOr<std::unique_ptr<Strategy>> MakeDdp(const LayerSpecs& specs,
                                                  const UpdateOptions& update,
                                                  Communicator& world) {
  ReplicatedOptions options;
  static_cast<UpdateOptions&>(options) = update;
  return MakeReplicated(MakeLayers(specs, 7), CrossEntropy, options, world);
}

// Two stages on two devices of each rank.
absl::StatusOr<std::unique_ptr<Strategy>> MakeHybrid(
    const LayerSpecs& specs, const UpdateOptions& update, Communicator& world) {
  MeshStrategyOptions options;
  static_cast<UpdateOptions&>(options) = update;
  options.schedule = *MakeSchedule("1f1b", {2, 1, 2});
  options.cuts = *UniformCuts(static_cast<int64_t>(specs.size()), 2);
  options.devices.assign(2, c10::kCPU);
  options.seed = 7;
  return MeshStrategy::Create(specs, CrossEntropy, options, &world);
}

struct Trained {
  std::vector<std::map<std::string, at::Tensor>> replicas;
  absl::Status status;
};

// One step of two replicas, each on its own batch.
Trained Train(const Make& make, const LayerSpecs& specs,
              const UpdateOptions& update) {
  Trained trained;
  trained.replicas.resize(2);
  trained.status = RunThreadRanks(2, [&](Communicator& world) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(const auto strategy, make(specs, update, world));
    TANDEM_RETURN_IF_ERROR(
        strategy->TrainStep(BatchOf(world.rank()), 0.1).status());
    auto& mine = trained.replicas[static_cast<size_t>(world.rank())];
    for (const auto& [name, tensor] : strategy->Parameters()) {
      mine[name] = tensor.detach().clone();
    }
    return absl::OkStatus();
  });
  return trained;
}

class ParameterTraitsTrainingTest : public testing::TestWithParam<bool> {
 protected:
  static Make MakeStrategy() {
    if (GetParam()) return MakeHybrid;
    return MakeDdp;
  }
};

TEST_P(ParameterTraitsTrainingTest, WithoutDataEachReplicaTrainsItsOwn) {
  ParameterTraits own;
  own.reduce_axes.clear();
  const Trained all = Train(MakeStrategy(), Specs({}), {});
  ASSERT_TRUE(all.status.ok()) << all.status;
  const Trained some = Train(MakeStrategy(), Specs(own), {});
  ASSERT_TRUE(some.status.ok()) << some.status;
  ASSERT_EQ(some.replicas[0].count(kParameter), 1u);
  for (const auto& [name, tensor] : some.replicas[0]) {
    EXPECT_TRUE(all.replicas[0].at(name).equal(all.replicas[1].at(name)));
    EXPECT_EQ(tensor.equal(some.replicas[1].at(name)), name != kParameter)
        << name;
  }
  // Both began alike: on average they went where the whole batch would.
  const at::Tensor mean =
      (some.replicas[0].at(kParameter) + some.replicas[1].at(kParameter)) / 2;
  EXPECT_TRUE(mean.allclose(all.replicas[0].at(kParameter), 1e-5, 1e-7));
}

TEST_P(ParameterTraitsTrainingTest, ItsGroupHasItsOwnOptimizer) {
  ParameterTraits decayed;
  decayed.optimizer_group = 1;
  UpdateOptions update;
  SgdOptions decay;
  decay.weight_decay = 0.5;
  update.further_optimizers = {decay};
  const Trained by_trait = Train(MakeStrategy(), Specs(decayed), update);
  ASSERT_TRUE(by_trait.status.ok()) << by_trait.status;
  update.optimizer_group = [](const std::string& name) -> int64_t {
    return name == kParameter ? 1 : 0;
  };
  const Trained by_name = Train(MakeStrategy(), Specs({}), update);
  ASSERT_TRUE(by_name.status.ok()) << by_name.status;
  const Trained without = Train(MakeStrategy(), Specs({}), {});
  for (const auto& [name, tensor] : by_trait.replicas[0]) {
    EXPECT_TRUE(tensor.equal(by_name.replicas[0].at(name))) << name;
    EXPECT_EQ(tensor.equal(without.replicas[0].at(name)), name != kParameter)
        << name;
  }
}

TEST_P(ParameterTraitsTrainingTest, WhatNoStrategyDoesIsRefusedByName) {
  ParameterTraits sharded;
  sharded.shard = ParameterShard{"data", 0};
  EXPECT_THAT(Train(MakeStrategy(), Specs(sharded), {}).status.ToString(),
              HasSubstr("fc1.weight is sharded along data"));
  ParameterTraits elsewhere;
  elsewhere.reduce_axes = {"tensor"};
  EXPECT_THAT(Train(MakeStrategy(), Specs(elsewhere), {}).status.ToString(),
              HasSubstr("fc1.weight has a trait along axis 'tensor'"));
}

INSTANTIATE_TEST_SUITE_P(Strategies, ParameterTraitsTrainingTest,
                         testing::Values(false, true), [](const auto& info) {
                           return info.param ? "Hybrid" : "Ddp";
                         });

}  // namespace
}  // namespace tandem
