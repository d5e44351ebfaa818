#include "parallel/strategy/state_per_parameter.h"

#include <gtest/gtest.h>

#include "parallel/schedule/schedules.h"

namespace tandem::state_per_parameter_test {
namespace {

MeshStrategyOptions Adam() {
  MeshStrategyOptions options;
  options.schedule = *OneFOneB({2, 1, 8});
  options.optimizer = AdamWOptions{};
  return options;
}

TEST(StatePerParameterTest, IsTheOptimizersSharedWhereItIs) {
  MeshStrategyOptions options = Adam();
  EXPECT_EQ(StatePerParameterOf(options, 4, true).optimizer_states, 2);
  EXPECT_EQ(StatePerParameterOf(options, 4, true).optimizer_shares, 1);
  options.shard_optimizer = OptimizerSharding::kAuto;
  EXPECT_EQ(StatePerParameterOf(options, 4, true).optimizer_shares, 4);
  EXPECT_EQ(StatePerParameterOf(options, 4, false).optimizer_shares, 1);
  options.ddp.static_graph = true;
  EXPECT_EQ(StatePerParameterOf(options, 4, true).optimizer_shares, 1);
  options = Adam();
  options.shard_optimizer = OptimizerSharding::kOn;
  EXPECT_EQ(StatePerParameterOf(options, 4, false).optimizer_shares, 4);
  options.shard_optimizer = OptimizerSharding::kAuto;
  options.optimizer = SgdOptions{0.9};
  EXPECT_EQ(StatePerParameterOf(options, 4, true).optimizer_states, 1);
  EXPECT_EQ(StatePerParameterOf(options, 4, true).optimizer_shares, 1);
}

TEST(StatePerParameterTest, HasDiLoCosValuesAndMomentum) {
  MeshStrategyOptions options = Adam();
  EXPECT_EQ(StatePerParameterOf(options, 2, true).further, 0);
  options.averaging = ParameterAveragingOptions{10, 0};
  EXPECT_EQ(StatePerParameterOf(options, 2, true).further, 1);
  options.averaging->outer = OuterOptimizerOptions{0.7, 0};
  EXPECT_EQ(StatePerParameterOf(options, 2, true).further, 2);
  options.averaging->outer->momentum = 0.9;
  EXPECT_EQ(StatePerParameterOf(options, 2, true).further, 3);
  // A device's values are kept in the host's memory meanwhile.
  options.devices = {c10::kCUDA};
  EXPECT_EQ(StatePerParameterOf(options, 2, true).further, 2);
}

TEST(StatePerParameterTest, HasTheAverages) {
  MeshStrategyOptions options = Adam();
  options.ema_decay = 0.9;
  EXPECT_EQ(StatePerParameterOf(options, 1, true).further, 1);
  // They are whole on each replica, whoever has the optimizer's state.
  options.shard_optimizer = OptimizerSharding::kOn;
  EXPECT_EQ(StatePerParameterOf(options, 4, true).further, 1);
  EXPECT_EQ(StatePerParameterOf(options, 4, true).optimizer_shares, 4);
}

// log2 of a replica's groups and one; one to send; one for groups in two parts.
TEST(StatePerParameterTest, HasTheSumsOfReproducible) {
  MeshStrategyOptions options = Adam();
  options.reproducible = true;
  EXPECT_EQ(StatePerParameterOf(options, 1, true).further, 4);
  EXPECT_EQ(StatePerParameterOf(options, 2, true).further, 5);
  options.gradient_groups = 2;
  EXPECT_EQ(StatePerParameterOf(options, 1, true).further, 2);
  EXPECT_EQ(StatePerParameterOf(options, 2, true).further, 2);
  options.schedule = *ZeroBubbleH1({2, 1, 8});
  EXPECT_EQ(StatePerParameterOf(options, 1, true).further, 3);
}

}  // namespace
}  // namespace tandem::state_per_parameter_test
