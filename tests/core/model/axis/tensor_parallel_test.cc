// The scope, what it does to modules, and regions.

#include "core/model/axis/tensor_parallel.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <cstdint>
#include <memory>
#include <string>

#include "core/model/axis/shard.h"
#include "core/model/axis/tensor_region.h"
#include "core/model/layer_list.h"
#include "core/testing/axis_ranks.h"
#include "core/testing/statuses.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/testing/thrown.h"

namespace tandem::tensor_parallel_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Group = std::shared_ptr<ThreadAxisGroup>;

std::shared_ptr<const TensorParallel> Parallel(const Group& group,
                                               bool sequence_parallel) {
  auto parallel = std::make_shared<TensorParallel>();
  parallel->group = group;
  parallel->sequence_parallel = sequence_parallel;
  return parallel;
}

// Half of it on each of two ranks.
class Halves : public torch::nn::Module, public TensorParallelModule {
 public:
  Halves() : weight_(register_parameter("weight", at::ones({4, 2}))) {}

  TraitsByName Divide(const TensorParallel& parallel,
                      const std::string& name) override {
    name_ = name;
    KeepShard(weight_, ParameterShard(), *parallel.group);
    return {{"weight", ShardTraits(parallel, ParameterShard())}};
  }

  const std::string& name() const { return name_; }

 private:
  at::Tensor weight_;
  std::string name_;
};

class Outer : public torch::nn::Module {
 public:
  Outer() : inner(register_module("inner", std::make_shared<Halves>())) {}

  const std::shared_ptr<Halves> inner;
};

TEST(TensorParallelScopeTest, IsTheThreadsAndNests) {
  ExpectOk(RunAxisRanks(2, [](const Group& group) {
    EXPECT_EQ(TensorParallelScope::Current(), nullptr);
    const auto outer = Parallel(group, true);
    const TensorParallelScope scope(outer);
    EXPECT_EQ(TensorParallelScope::Current(), outer);
    {
      const TensorParallelScope whole(nullptr);
      EXPECT_EQ(TensorParallelScope::Current(), nullptr);
    }
    EXPECT_EQ(TensorParallelScope::Current(), outer);
    return absl::OkStatus();
  }));
}

TEST(TensorParallelScopeTest, AGroupOfOneDividesNothing) {
  ExpectOk(RunAxisRanks(1, [](const Group& group) {
    const TensorParallelScope scope(Parallel(group, true));
    EXPECT_EQ(TensorParallelScope::Current(), nullptr);
    const auto module = std::make_shared<Outer>();
    EXPECT_THAT(DivideModule(*module, "layer"), IsEmpty());
    EXPECT_EQ(module->parameters()[0].size(0), 4);
    return absl::OkStatus();
  }));
}

TEST(DivideModuleTest, TellsModulesTheirNamesAndPrefixesTheirTraits) {
  ExpectOk(RunAxisRanks(2, [](const Group& group) {
    const TensorParallelScope scope(Parallel(group, true));
    const auto module = std::make_shared<Outer>();
    const TraitsByName traits = DivideModule(*module, "layer");
    EXPECT_EQ(module->inner->name(), "layer.inner");
    EXPECT_EQ(module->parameters()[0].size(0), 2);
    EXPECT_EQ(traits.size(), 1u);
    EXPECT_EQ(traits.at("inner.weight").shard->axis, "tensor");
    return absl::OkStatus();
  }));
}

TEST(DivideModuleTest, WhatKnowsNothingOfSequenceParallelismIsRefusedByName) {
  ExpectOk(RunAxisRanks(2, [](const Group& group) {
    const auto module = std::make_shared<torch::nn::LinearImpl>(2, 2);
    {
      const TensorParallelScope scope(Parallel(group, true));
      EXPECT_THAT(Thrown([&] { DivideModule(*module, "layer"); }),
                  HasSubstr("layer (torch::nn::LinearImpl) has parameters, and "
                            "knows nothing of sequence parallelism along "
                            "tensor: do without that, or derive"));
    }
    const TensorParallelScope scope(Parallel(group, false));
    EXPECT_THAT(DivideModule(*module, "layer"), IsEmpty());
    return absl::OkStatus();
  }));
}

// A made layer has the shard, to which its spec adds the group.
TEST(DivideModuleTest, TraitsOfAPlaceReachTheLayerBesideItsSpecs) {
  ExpectOk(RunAxisRanks(2, [](const Group& group) {
    LayerSpec spec;
    spec.name = "layer";
    spec.make = [](uint64_t) {
      const auto module = std::make_shared<Halves>();
      Layer layer{"layer", module, [](const at::Tensor& x) { return x; }};
      layer.traits = DivideModule(*module, "layer");
      return layer;
    };
    spec.traits["weight"].optimizer_group = 1;
    const TensorParallelScope scope(Parallel(group, true));
    const TraitsByName traits = NamedTraits(MakeLayers({spec}, 1));
    EXPECT_EQ(traits.at("layer.weight").optimizer_group, 1);
    EXPECT_EQ(traits.at("layer.weight").shard->axis, "tensor");
    return absl::OkStatus();
  }));
}

TEST(ShareOfRankTest, WhatTheDegreeDoesNotDivideIsRefusedByName) {
  ExpectOk(RunAxisRanks(3, [](const Group& group) {
    const auto parallel = Parallel(group, true);
    EXPECT_EQ(ShareOfRank(*parallel, 12, "heads", "h.0"), 4);
    EXPECT_THAT(
        Thrown([&] { ShareOfRank(*parallel, 10, "heads", "h.0"); }),
        HasSubstr("h.0 has 10 heads, which 3 ranks along tensor cannot share "
                  "evenly: choose a degree that divides 10"));
    return absl::OkStatus();
  }));
}

TEST(TensorRegionTest, AWholeOneGivesBackWhatItTakes) {
  const TensorRegion region;
  const at::Tensor x = at::randn({2, 3, 4});
  EXPECT_TRUE(region.Enter(x).is_same(x));
  EXPECT_TRUE(region.Leave(x).is_same(x));
  EXPECT_TRUE(region.Outside(x).is_same(x));
  EXPECT_TRUE(region.FirstToken(x).equal(x.select(1, 0)));
  EXPECT_EQ(region.FirstPosition(3), 0);
  EXPECT_EQ(region.FirstElement(x), 0);
  region.CheckTokens(3);
}

TEST(TensorRegionTest, NamesItsCollectives) {
  ExpectOk(RunAxisRanks(2, [](const Group& group) {
    for (const bool sequence : {false, true}) {
      const TensorRegion region(*Parallel(group, sequence), "h.0.mlp");
      const at::Tensor x = at::randn({1, 2, 3}).requires_grad_();
      region.Leave(region.Enter(x) * 2).sum().backward();
      if (sequence) {
        EXPECT_THAT(
            group->TakeCalls(),
            ElementsAre(
                "all-gather activations that go into h.0.mlp",
                "reduce-scatter activations that come out of h.0.mlp",
                "all-gather gradient of activations that come out of h.0.mlp",
                "reduce-scatter gradient of activations that go into "
                "h.0.mlp"));
      } else {
        EXPECT_THAT(
            group->TakeCalls(),
            ElementsAre("all-reduce activations that come out of h.0.mlp",
                        "all-reduce gradient of activations that go into "
                        "h.0.mlp"));
      }
    }
    return absl::OkStatus();
  }));
}

TEST(TensorRegionTest, KnowsPositionsAndElementsOfItsTokens) {
  ExpectOk(RunAxisRanks(3, [](const Group& group) {
    const TensorRegion region(*Parallel(group, true), "r");
    const at::Tensor x = at::arange(2 * 7 * 5).view({2, 7, 5});
    const at::Tensor mine = region.Outside(x);  // 3, 3, and 1 with two zeros
    EXPECT_EQ(mine.size(1), 3);
    EXPECT_EQ(region.FirstPosition(3), 3 * group->index());
    EXPECT_EQ(region.FirstElement(mine), 15 * group->index());
    EXPECT_EQ(mine[0].flatten()[0].item<int64_t>(), 15 * group->index());
    EXPECT_TRUE(region.Enter(mine, 7).equal(x));
    EXPECT_TRUE(region.FirstToken(mine).equal(x.select(1, 0)));
    EXPECT_THAT(Thrown([&] { region.CheckTokens(7); }),
                HasSubstr("r: samples of 7 tokens cannot be divided over 3 "
                          "ranks along tensor"));
    region.CheckTokens(6);
    return absl::OkStatus();
  }));
}

}  // namespace
}  // namespace tandem::tensor_parallel_test
