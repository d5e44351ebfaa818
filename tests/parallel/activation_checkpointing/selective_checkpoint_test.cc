#include "parallel/activation_checkpointing/selective_checkpoint.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/model/layer_list.h"
#include "core/random/random.h"
#include "core/testing/device_types.h"
#include "core/testing/statuses.h"
#include "models/cnn.h"
#include "models/resnet.h"
#include "models/transformer/gpt.h"
#include "parallel/activation_checkpointing/checkpointed_groups.h"

namespace tandem::selective_checkpoint_test {
namespace {

class SelectiveCheckpointTest : public DeviceTypeTest {
 protected:
  // A model, what it takes, and what it comes to after two steps of backward.
  struct Trained {
    at::Tensor output;
    std::vector<at::Tensor> gradients, buffers;
  };
  static Trained Train(const LayerSpecs& specs, const at::Tensor& input,
                       const SelectiveCheckpointing& selective,
                       bool use_reentrant = false) {
    const LayerList layers = MakeLayers(specs, 5);
    for (const Layer& each : layers) {
      if (each.module != nullptr) each.module->to(TestDevice());
    }
    LayerList run = layers;
    if (selective.is_on()) {
      CheckpointOptions options;
      options.use_reentrant = use_reentrant;
      auto made = SelectiveCheckpoint(layers, selective, options);
      EXPECT_TRUE(made.ok()) << made.status();
      run = *std::move(made);
    }
    Trained trained;
    for (int step = 0; step < 2; ++step) {
      trained.output = Forward(run, input.to(TestDevice()));
      trained.output.sin().sum().backward();
    }
    for (const auto& each : NamedParameters(run)) {
      trained.gradients.push_back(each.second.grad());
    }
    for (const auto& each : NamedBuffers(run)) {
      trained.buffers.push_back(each.second);
    }
    return trained;
  }
  // Bit for bit, but for sums in another order where backward re-enters.
  static void ExpectSame(const std::vector<at::Tensor>& found,
                         const std::vector<at::Tensor>& expected,
                         bool use_reentrant) {
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_TRUE(use_reentrant
                      ? at::allclose(found[i], expected[i], 1e-4, 1e-6)
                      : at::equal(found[i], expected[i]))
          << i;
    }
  }
  static void ExpectSameAsWithout(const LayerSpecs& specs,
                                  const at::Tensor& input,
                                  const SelectiveCheckpointing& selective) {
    const Trained plain = Train(specs, input, {});
    for (const bool use_reentrant : {false, true}) {
      const Trained found = Train(specs, input, selective, use_reentrant);
      EXPECT_TRUE(at::equal(found.output, plain.output));
      ExpectSame(found.gradients, plain.gradients, use_reentrant);
      ExpectSame(found.buffers, plain.buffers, false);
    }
  }
};
TANDEM_ON_DEVICE_TYPES(SelectiveCheckpointTest);

LayerSpecs SmallGpt(bool ties_lm_head) {
  GptOptions options;
  options.layers = 3;
  options.width = 10;
  options.heads = 2;
  options.context = 6;
  options.vocabulary = 11;
  options.ties_lm_head = ties_lm_head;
  return *Gpt(options);
}

at::Tensor Tokens() {
  return at::randint(11, {2, 5}, GeneratorFor(1, "tokens"), at::kLong);
}

TEST_P(SelectiveCheckpointTest, BlocksByTheirNames) {
  ExpectSameAsWithout(SmallGpt(false), Tokens(), {"\\.h\\.|^h", 0});
}

TEST_P(SelectiveCheckpointTest, AWeightThatTwoGroupsShare) {
  ExpectSameAsWithout(SmallGpt(true), Tokens(), {"", 1});
  ExpectSameAsWithout(SmallGpt(true), Tokens(), {"", 4});
}

TEST_P(SelectiveCheckpointTest, GroupsWithBatchNorm) {
  ResnetOptions options;
  options.classes = 5;
  options.width = 4;
  const at::Tensor images = at::randn({3, 3, 9, 9}, GeneratorFor(1, "images"));
  for (const int every : {1, 2, 5, 100}) {
    ExpectSameAsWithout(Resnet18(options), images, {"", every});
  }
}

// Skip connections begin, end and pass within groups, and across them.
TEST_P(SelectiveCheckpointTest, SkipConnections) {
  const LayerSpecs specs = UnetTiny(UnetOptions());
  const at::Tensor images =
      at::randn({2, 1, 16, 16}, GeneratorFor(1, "images"));
  for (int every = 1; every <= static_cast<int>(specs.size()); ++every) {
    ExpectSameAsWithout(specs, images, {"", every});
  }
}

TEST_P(SelectiveCheckpointTest, APatternThatMatchesNothingIsRefused) {
  const auto made =
      SelectiveCheckpoint(MakeLayers(SmallGpt(false), 1), {"no such", 0});
  EXPECT_THAT(made.status(), Says("no such"));
}

using Groups = std::vector<std::pair<int64_t, int64_t>>;

const std::vector<std::string>& Names() {
  static const auto* names = new std::vector<std::string>{
      "wte", "h.0", "h.1", "h.2", "ln", "h.3", "head"};
  return *names;
}

Groups Found(const SelectiveCheckpointing& selective,
             const std::vector<std::string>& names = Names()) {
  Groups groups;
  const auto found = CheckpointedGroups(names, selective);
  EXPECT_TRUE(found.ok()) << found.status();
  for (const LayerRange& each : *found) {
    groups.emplace_back(each.begin, each.end);
  }
  return groups;
}

TEST(CheckpointedGroupsTest, NoneUnlessAskedFor) {
  EXPECT_FALSE(SelectiveCheckpointing().is_on());
  EXPECT_EQ(Found({}), Groups());
}

TEST(CheckpointedGroupsTest, APatternMeansLayersByThemselves) {
  EXPECT_EQ(Found({"^h\\.", 0}), (Groups{{1, 2}, {2, 3}, {3, 4}, {5, 6}}));
  EXPECT_EQ(Found({"head|wte", 1}), (Groups{{0, 1}, {6, 7}}));
}

TEST(CheckpointedGroupsTest, EverySoManyNeighboursAreOne) {
  EXPECT_EQ(Found({"", 1}).size(), 7u);
  EXPECT_EQ(Found({"", 3}), (Groups{{0, 3}, {3, 6}, {6, 7}}));
  EXPECT_EQ(Found({"", 100}), (Groups{{0, 7}}));
  EXPECT_EQ(Found({"", 3}, {}), Groups());
}

TEST(CheckpointedGroupsTest, NeighboursAmongThoseThatAreMeant) {
  EXPECT_EQ(Found({"^h\\.", 2}), (Groups{{1, 3}, {3, 4}, {5, 6}}));
}

TEST(CheckpointedGroupsTest, WhatMeansNothingIsRefused) {
  EXPECT_THAT(CheckpointedGroups(Names(), {"h(", 0}).status(),
              Says("checkpoint_layers=h(: not a regular expression"));
  EXPECT_THAT(CheckpointedGroups(Names(), {"", -1}).status(),
              Says("checkpoint_every must be 0 or more, not -1"));
  EXPECT_THAT(CheckSomeLayerIsMeant(Names(), {"block", 2}),
              Says("checkpoint_layers=block matches no layer", "h.3, head"));
  EXPECT_TRUE(CheckSomeLayerIsMeant(Names(), {"", 2}).ok());
  EXPECT_TRUE(CheckSomeLayerIsMeant(Names(), {}).ok());
}

}  // namespace
}  // namespace tandem::selective_checkpoint_test
