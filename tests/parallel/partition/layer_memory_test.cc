// What is counted of layers without running them.

#include "parallel/partition/layer_memory.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "core/model/layer_list.h"
#include "models/mlp.h"

namespace tandem::layer_memory_test {
namespace {

constexpr int64_t kFloat = 4;
constexpr int64_t kWeight = 12 * 16;
constexpr int64_t kBias = 16;

// flatten, fc1, relu1, fc2, ...: fc1's weight is frozen.
LayerList Layers() {
  LayerList layers = MakeLayers(Mlp({12, 3, 16, 5}), 1);
  layers[1].module->named_parameters()["weight"].set_requires_grad(false);
  return layers;
}

ModelProfile StateOf(const LayerList& layers, const StatePerParameter& kept) {
  ModelProfile profile;
  profile.layers.resize(layers.size());
  CountState(layers, kept, profile);
  return profile;
}

TEST(CountStateTest, NothingIsGatheredOfAWholeModel) {
  const ModelProfile profile = StateOf(Layers(), {});
  EXPECT_EQ(profile.layers[1].state_bytes, (kWeight + 3 * kBias) * kFloat);
  for (const LayerProfile& each : profile.layers) {
    EXPECT_EQ(each.gathered_bytes, 0);
    EXPECT_EQ(each.gathered_numbers, 0);
  }
}

// Replicas share what is trained, and gather it when they need it.
TEST(CountStateTest, WhatIsTrainedIsSharedAndGathered) {
  StatePerParameter kept;
  kept.optimizer_shares = kept.gradient_shares = kept.parameter_shares = 4;
  kept.gathered_together = 7;
  const ModelProfile profile = StateOf(Layers(), kept);
  EXPECT_EQ(profile.gathered_together, 7);
  const LayerProfile& fc1 = profile.layers[1];
  EXPECT_EQ(fc1.parameter_bytes, (kWeight + kBias) * kFloat);
  EXPECT_EQ(fc1.state_bytes, (kWeight + 3 * kBias / 4) * kFloat);
  EXPECT_EQ(fc1.gathered_bytes, kBias * kFloat);
  EXPECT_EQ(fc1.gathered_numbers, kBias);
  const LayerProfile& fc2 = profile.layers[3];
  EXPECT_EQ(fc2.state_bytes, 3 * fc2.parameter_bytes / 4);
  EXPECT_EQ(fc2.gathered_bytes, fc2.parameter_bytes);
  EXPECT_EQ(fc2.gathered_numbers, 16 * 16 + 16);
  EXPECT_EQ(profile.layers[2].gathered_bytes, 0);
}

}  // namespace
}  // namespace tandem::layer_memory_test
