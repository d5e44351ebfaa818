#include "tools/trainer/job/optimizer_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/types/variant.h"
#include "core/checkpoint/row_parts.h"
#include "core/model/layer.h"
#include "core/testing/statuses.h"
#include "models/layers/basic_layers.h"
#include "models/registry.h"
#include "models/vocab_parallel.h"
#include "parallel/optim/optimizer_options.h"

namespace tandem::optimizer_groups_test {
namespace {

using testing::HasSubstr;

LayerSpecs TinyGpt() {
  ModelOptions model;
  model.name = "gpt_tiny_tied";
  model.tokens = true;
  model.classes = 20;
  model.input_shape = {6};
  model.sizes.layers = 2;
  return *MakeModel(model);
}

TrainOptions Muon() {
  TrainOptions options;
  options.optimizer = "muon";
  options.weight_decay = 0.1;
  return options;
}

template <typename Options>
Options OptimizerAt(const OptimizerGroups& groups, size_t group) {
  return absl::get<Options>(AllOptimizers(groups.update).at(group));
}

TEST(OptimizerGroupsTest, OneOptimizerNeedsNone) {
  for (const std::string optimizer : {"sgd", "adam", "adamw"}) {
    TrainOptions options;
    options.optimizer = optimizer;
    const auto groups = MakeOptimizerGroups(options, TinyGpt(), {});
    ASSERT_TRUE(groups.ok()) << groups.status();
    EXPECT_EQ(AllOptimizers(groups->update).size(), 1u);
    EXPECT_FALSE(groups->update.optimizer_group);
    EXPECT_EQ(groups->description, "");
  }
}

// 2 blocks of 4 matrices of 12 parameters; embeddings, of which one is the
// head's weight, and the last norm.
TEST(OptimizerGroupsTest, MuonHasTheMatricesOfHiddenLayers) {
  const auto groups = MakeOptimizerGroups(Muon(), TinyGpt(), {});
  ASSERT_TRUE(groups.ok()) << groups.status();
  EXPECT_EQ(groups->description, "muon 8 of 28 parameters, adamw the rest");
  const OptimizerGroup& group = groups->update.optimizer_group;
  EXPECT_EQ(group("transformer.h.0.attn.c_attn.weight"), 0);
  EXPECT_EQ(group("transformer.h.1.mlp.c_proj.weight"), 0);
  for (const char* name :
       {"transformer.wte.weight", "transformer.wpe.weight", "lm_head.weight",
        "transformer.h.0.attn.c_attn.bias", "transformer.h.0.ln_1.weight"}) {
    EXPECT_EQ(group(name), 1) << name;
  }
  ASSERT_EQ(AllOptimizers(groups->update).size(), 2u);
  EXPECT_EQ(OptimizerAt<MuonOptions>(*groups, 0).weight_decay, 0.1);
  EXPECT_EQ(OptimizerAt<AdamWOptions>(*groups, 1).weight_decay, 0.1);
}

TEST(OptimizerGroupsTest, FlagsAreMuonsOptions) {
  TrainOptions options = Muon();
  const auto muon = [&] {
    return OptimizerAt<MuonOptions>(
        *MakeOptimizerGroups(options, TinyGpt(), {}), 0);
  };
  EXPECT_EQ(muon().momentum, MuonOptions().momentum);
  EXPECT_EQ(muon().ns_steps, MuonOptions().ns_steps);
  EXPECT_TRUE(muon().nesterov);
  EXPECT_EQ(muon().adjust_lr, MuonAdjustment::kMatchRmsAdamW);
  EXPECT_EQ(muon().learning_rate_factor, 1);
  options.learning_rate = 0.004;
  options.muon_learning_rate = 0.02;
  options.muon_momentum = 0.9;
  options.muon_ns_steps = 3;
  options.muon_nesterov = false;
  options.muon_adjust_lr = "original";
  options.adam_beta2 = 0.95;
  EXPECT_DOUBLE_EQ(muon().learning_rate_factor, 5);
  EXPECT_EQ(muon().momentum, 0.9);
  EXPECT_EQ(muon().ns_steps, 3);
  EXPECT_FALSE(muon().nesterov);
  EXPECT_EQ(muon().adjust_lr, MuonAdjustment::kOriginal);
  options.muon_adjust_lr = "spectral_unclamped";
  EXPECT_EQ(muon().adjust_lr, MuonAdjustment::kSpectralUnclamped);
  EXPECT_EQ(
      OptimizerAt<AdamWOptions>(*MakeOptimizerGroups(options, TinyGpt(), {}), 1)
          .beta2,
      0.95);
}

TEST(OptimizerGroupsTest, WhatIsExemptFromDecayIsAGroupOfEachOptimizer) {
  TrainOptions options = Muon();
  options.no_weight_decay_on = "h.1|bias";
  const auto groups = MakeOptimizerGroups(options, TinyGpt(), {});
  ASSERT_TRUE(groups.ok()) << groups.status();
  const OptimizerGroup& group = groups->update.optimizer_group;
  EXPECT_EQ(group("transformer.h.0.attn.c_attn.weight"), 0);
  EXPECT_EQ(group("transformer.h.1.attn.c_attn.weight"), 1);
  EXPECT_EQ(group("transformer.wte.weight"), 2);
  EXPECT_EQ(group("transformer.h.0.attn.c_attn.bias"), 3);
  EXPECT_EQ(OptimizerAt<MuonOptions>(*groups, 0).weight_decay, 0.1);
  EXPECT_EQ(OptimizerAt<MuonOptions>(*groups, 1).weight_decay, 0);
  EXPECT_EQ(OptimizerAt<AdamWOptions>(*groups, 2).weight_decay, 0.1);
  EXPECT_EQ(OptimizerAt<AdamWOptions>(*groups, 3).weight_decay, 0);
  const auto exempt = DescribeExempt(
      options, group,
      {"transformer.h.0.attn.c_attn.weight", "transformer.wte.weight",
       "transformer.h.1.attn.c_attn.weight",
       "transformer.h.0.attn.c_attn.bias"},
      {});
  ASSERT_TRUE(exempt.ok()) << exempt.status();
  EXPECT_EQ(*exempt, "2 of 4 parameters");
}

// By whatever name, and in however many parts.
TEST(OptimizerGroupsTest, ADividedHeadIsNoHiddenLayer) {
  VocabParallelOptions division;
  division.parts = 3;
  const auto divided = DivideVocabulary(TinyGpt(), division);
  ASSERT_TRUE(divided.ok()) << divided.status();
  const auto groups =
      MakeOptimizerGroups(Muon(), divided->specs, divided->parts);
  ASSERT_TRUE(groups.ok()) << groups.status();
  EXPECT_EQ(groups->description, "muon 8 of 28 parameters, adamw the rest");
  for (const auto& each : divided->parts) {
    EXPECT_EQ(groups->update.optimizer_group(each.first), 1) << each.first;
  }
  EXPECT_EQ(groups->update.optimizer_group("transformer.h.0.mlp.c_fc.weight"),
            0);
}

TEST(OptimizerGroupsTest, AModelWithoutMatricesIsRefused) {
  TrainOptions options = Muon();
  options.model = "of_one_layer";
  EXPECT_THAT(
      MakeOptimizerGroups(options, {LinearLayer("fc", 4, 2)}, {}).status(),
      InvalidArgument("--optimizer=muon is for matrices of hidden layers, of "
                      "which --model=of_one_layer has none"));
}

}  // namespace
}  // namespace tandem::optimizer_groups_test
