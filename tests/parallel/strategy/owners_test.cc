// The arithmetic of owners: who writes what of a checkpoint, and what of it a
// rank asks for.

#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/base/tensors.h"
#include "core/mesh/mesh.h"
#include "core/testing/statuses.h"
#include "parallel/strategy/owned_state.h"

namespace tandem::owners_test {
namespace {

constexpr char kTensorAxis[] = "tensor";

TraitsByName Traits() {
  TraitsByName traits;
  traits["wte.weight"].shard = ParameterShard{kTensorAxis, 0};
  traits["c_attn.weight"].shard = ParameterShard{kTensorAxis, 1, 3};
  traits["c_attn.bias"].shard = ParameterShard{kTensorAxis, 0, 3};
  return traits;
}

// Names that the rank writes.
std::vector<std::string> NamesWritten(const NamedTensors& state,
                                      const Mesh& mesh, int rank,
                                      const NamedTensors& parameters) {
  const ShardsByName shards = *FindShards(parameters, Traits(), mesh, rank);
  std::vector<std::string> names;
  for (const auto& each : OwnedState(state, {mesh, rank, shards}).tensors) {
    names.push_back(each.first);
  }
  return names;
}

TEST(OwnersTest, TheFirstAlongAllOtherAxesWrites) {
  const Mesh mesh = *Mesh::Create({{"data", 2}, {"pipe", 2}, {kTensorAxis, 3}});
  const NamedTensors parameters = {{"c_attn.weight", at::zeros({5, 12})},
                                   {"ln.weight", at::zeros({7})}};
  const NamedTensors state = {
      {"c_attn.weight", parameters[0].second},
      {"ln.weight", parameters[1].second},
      {"buffer", at::zeros({2})},
      {"optimizer.c_attn.weight.exp_avg", at::zeros({5, 12})},
      {"optimizer.c_attn.weight.step", at::scalar_tensor(1.)},
      {"optimizer.ln.weight.exp_avg", at::zeros({7})}};
  for (int rank = 0; rank < mesh.world_size(); ++rank) {
    const auto names = NamesWritten(state, mesh, rank, parameters);
    if (mesh.IndexAlong("data", rank) > 0) {
      EXPECT_TRUE(names.empty()) << rank;
    } else if (mesh.IndexAlong(kTensorAxis, rank) > 0) {
      EXPECT_THAT(names, testing::ElementsAre("c_attn.weight",
                                              "optimizer.c_attn.weight."
                                              "exp_avg"));
    } else {
      EXPECT_EQ(names.size(), state.size()) << rank;
    }
  }
}

// Where nothing is sharded the first replica writes all, and no slices.
TEST(OwnersTest, WithoutShardsTheFirstReplicaWritesWhatItHas) {
  const Mesh mesh = *Mesh::Create(6, {.pipe = 3});
  const NamedTensors state = {{"ln.weight", at::zeros({7})}};
  const ShardsByName none;
  for (int rank = 0; rank < 6; ++rank) {
    const StatePart part = OwnedState(state, {mesh, rank, none});
    EXPECT_EQ(part.tensors.size(), rank < 3 ? 1u : 0u);
    EXPECT_TRUE(part.slices.empty());
  }
}

TEST(OwnersTest, AllNamesOfATensorGoByTheFirst) {
  const Mesh mesh = *Mesh::Create({{kTensorAxis, 2}});
  const at::Tensor tied = at::zeros({6, 5});
  const auto shards = FindShards({{"nothing", at::Tensor()},
                                  {"wte.weight", tied},
                                  {"lm_head.weight", tied},
                                  {"ln.weight", at::zeros({7})}},
                                 Traits(), mesh, 1);
  ASSERT_TRUE(shards.ok()) << shards.status();
  ASSERT_EQ(shards->size(), 2u);
  EXPECT_EQ(shards->at("lm_head.weight").sizes, (std::vector<int64_t>{12, 5}));
  EXPECT_EQ(FormatShard(shards->at("wte.weight").shard), "6+6;0+5");
}

TEST(OwnersTest, WhatDoesNotFitIsRefusedByName) {
  const Mesh mesh = *Mesh::Create({{kTensorAxis, 2}});
  EXPECT_THAT(
      FindShards({{"c_attn.bias", at::zeros({4})}}, Traits(), mesh, 0).status(),
      InvalidArgument("parameter c_attn.bias", "3 blocks"));
  const ShardsByName shards =
      *FindShards({{"wte.weight", at::zeros({6, 5})}}, Traits(), mesh, 0);
  const auto name = [](const std::string& each) { return each; };
  for (const std::vector<int64_t>& sizes :
       {std::vector<int64_t>{6, 5}, {12, 6}, {12}, {13, 5}}) {
    EXPECT_THAT(
        ShardsToLoad({{"wte.weight", at::zeros(sizes)}}, shards, name).status(),
        InvalidArgument("state wte.weight", "expected shape [12, 5]",
                        "along tensor"));
  }
  const auto taken = ShardsToLoad({{"wte.weight", at::zeros({12, 5})},
                                   {"wte.weight.step", at::scalar_tensor(3.)}},
                                  shards, name);
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_EQ(taken->begin()->info.sizes, (std::vector<int64_t>{6, 5}));
}

}  // namespace
}  // namespace tandem::owners_test
