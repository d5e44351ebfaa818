#include "tools/bench/gpt/cases.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tandem::gpt_cases_test {
namespace {

using testing::ElementsAre;

Case Named(const std::string& name) {
  return CasesNamed(GptCases({}), {name})->front();
}

TEST(GptCases, AreEachModelInEachLayoutWithAdamW) {
  const std::vector<Case> cases = GptCases({});
  ASSERT_EQ(cases.size(), 15u);
  for (const Case& each : cases) {
    EXPECT_EQ(each.workload.optimizer, "adamw") << each.name;
    EXPECT_TRUE(each.workload.tokens) << each.name;
    EXPECT_GT(each.workload.gflop, 0) << each.name;
    EXPECT_EQ(each.workload.batch_size % each.layout.replicas, 0) << each.name;
  }
}

TEST(GptCases, TakeOtherSizes) {
  const Case sized = CasesNamed(GptCases({2, 64}), {"gpt2/1x1"})->front();
  EXPECT_EQ(sized.workload.batch_size, 2);
  EXPECT_THAT(sized.workload.input_shape, ElementsAre(64));
}

TEST(GptPeers, AreThePyTorchFormOfTheLayout) {
  const std::vector<Peer> alone =
      GptPeers(Named("gpt_baby/1x1"), {"eager", "compile"}, false);
  ASSERT_EQ(alone.size(), 2u);
  EXPECT_EQ(alone[0].program, Program::kOneProcess);
  EXPECT_EQ(alone[0].settings.front().recipe, "eager");
  EXPECT_FALSE(alone[0].may_fail);
  EXPECT_TRUE(alone[1].may_fail);

  const std::vector<Peer> replicas =
      GptPeers(Named("gpt_baby/2x1"), {"eager"}, true);
  EXPECT_EQ(replicas[0].program, Program::kPyTorch);
  EXPECT_EQ(replicas[0].settings.front().recipe, "eager");

  const std::vector<Peer> stages =
      GptPeers(Named("gpt_baby/2x2_ranks"), {"eager", "compile"}, true);
  EXPECT_EQ(stages[0].name, "pipelining");
  EXPECT_EQ(stages[1].name, "pipelining, compiled");
  EXPECT_FALSE(stages[1].may_fail);  // it is wanted
  ASSERT_FALSE(stages[1].settings.empty());
  for (const Setting& each : stages[1].settings) {
    EXPECT_EQ(each.recipe, "compiled");
    EXPECT_NE(each.schedule, "zero_bubble");
  }
}

TEST(GptPeers, ComputeLossesThatOursKnow) {
  for (const Case& bench : GptCases({})) {
    for (const Peer& peer : GptPeers(bench, {"eager", "compile"}, true)) {
      for (const Setting& setting : peer.settings) {
        bool known = false;
        for (const Setting& ours : bench.ours) {
          known = known || ours.microbatches == setting.microbatches;
        }
        EXPECT_TRUE(known) << bench.name << " " << ToString(setting);
      }
    }
  }
}

}  // namespace
}  // namespace tandem::gpt_cases_test
