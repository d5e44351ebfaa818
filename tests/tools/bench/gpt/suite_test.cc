#include "tools/bench/gpt/suite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "models/transformer/sizes.h"
#include "models/transformer/training_memory.h"
#include "tests/tools/bench/sides.h"

namespace tandem::gpt_suite_test {
namespace {

using nlohmann::json;
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

constexpr double kMib = 1 << 20;

// Eight samples.
Workload Gpt() {
  Workload workload = *WorkloadNamed("gpt_baby");
  workload.batch_size = 8;
  return workload;
}

Setting SettingWith(const char* schedule, int chunks, int microbatches) {
  Setting setting;
  setting.schedule = schedule;
  setting.chunks = chunks;
  setting.microbatches = microbatches;
  return setting;
}

// Memory of gpt_baby's layers from `first` on, to `end`, holding so many
// microbatches.
double Stage(int64_t first, int64_t end, int64_t samples, int64_t held) {
  DeviceWork work;
  work.first_layer = first;
  work.end_layer = end;
  work.samples = samples;
  work.tokens = 256;
  work.microbatches_held = held;
  return static_cast<double>(MemoryOf(*GptSize("gpt_baby"), work).total()) /
         kMib;
}

TEST(FormulaMib, OfOneDeviceIsThatOfTheModel) {
  EXPECT_DOUBLE_EQ(FormulaMib(Gpt(), {1, 1, 1}, SettingWith("1f1b", 1, 1)),
                   Stage(0, 10, 8, 1));
  // A replica has half of the batch; one of its two microbatches is held.
  EXPECT_DOUBLE_EQ(FormulaMib(Gpt(), {2, 1, 1}, SettingWith("1f1b", 1, 2)),
                   Stage(0, 10, 2, 1));
}

TEST(FormulaMib, OfRanksIsThatOfTheOneWithTheMost) {
  EXPECT_DOUBLE_EQ(FormulaMib(Gpt(), {1, 2, 1}, SettingWith("1f1b", 1, 4)),
                   std::max(Stage(0, 5, 2, 2), Stage(5, 10, 2, 1)));
}

TEST(FormulaMib, OfARankOfSeveralDevicesIsTheirSum) {
  EXPECT_DOUBLE_EQ(FormulaMib(Gpt(), {1, 1, 2}, SettingWith("1f1b", 1, 4)),
                   Stage(0, 5, 2, 2) + Stage(5, 10, 2, 1));
}

// In ZB-V each device has two of four stages, 3 + 3 + 2 + 2 layers, and holds
// four forwards of them.
TEST(FormulaMib, KnowsStagesOfOneDevice) {
  EXPECT_DOUBLE_EQ(FormulaMib(Gpt(), {1, 2, 1}, SettingWith("zb_v", 2, 4)),
                   std::max(Stage(0, 3, 2, 2) + Stage(8, 10, 2, 2),
                            Stage(3, 6, 2, 2) + Stage(6, 8, 2, 2)));
}

TEST(FormulaMib, KnowsPyTorchsZeroBubble) {
  EXPECT_DOUBLE_EQ(
      FormulaMib(Gpt(), {1, 2, 1}, SettingWith("zero_bubble", 1, 4)),
      FormulaMib(Gpt(), {1, 2, 1}, SettingWith("zb_h1", 1, 4)));
  EXPECT_DOUBLE_EQ(
      FormulaMib(Gpt(), {1, 2, 1}, SettingWith("zero_bubble", 2, 4)),
      FormulaMib(Gpt(), {1, 2, 1}, SettingWith("zb_v", 2, 4)));
}

TEST(FormulaMib, HasHalfTheActivationsInBf16) {
  Workload bf16 = Gpt();
  bf16.dtype = "bf16";
  DeviceWork work;
  work.samples = 8;
  work.tokens = 256;
  work.element_bytes = 2;
  EXPECT_DOUBLE_EQ(
      FormulaMib(bf16, {1, 1, 1}, SettingWith("1f1b", 1, 1)),
      static_cast<double>(MemoryOf(*GptSize("gpt_baby"), work).total()) / kMib);
}

TEST(FormulaMib, IsNothingForOthers) {
  EXPECT_EQ(FormulaMib(*WorkloadNamed("resnet18"), {1, 1, 1},
                       SettingWith("1f1b", 1, 1)),
            0);
  EXPECT_EQ(FormulaMib(Gpt(), {1, 2, 1}, SettingWith("other", 1, 1)), 0);
}

// 4 samples of 256 tokens.
CaseResult ExampleResult() {
  CaseResult result;
  result.bench = CasesNamed(GptCases({}), {"gpt_baby/2x1"})->front();
  result.bench.workload.gflop = 2;  // of a sample
  result.ours = MeasuredSide("tandem", {100, 100, 128}, 300);
  result.peers = {MeasuredSide("eager", {128, 128, 128}, 400),
                  FailedSide("compile", "no compiler")};
  return result;
}

TEST(GptTables, HaveTokensASecondAndMemory) {
  const json report = TablesJson(GptTables({ExampleResult()}));
  ASSERT_EQ(report.at("cases").size(), 1u);
  const json& eager = report.at("cases")[0];
  EXPECT_EQ(eager.at("peer"), "eager");
  EXPECT_EQ(eager.at("ratio"), 1.28);
  EXPECT_EQ(eager.at("ours_tokens_per_s"), 10240.0);
  EXPECT_EQ(eager.at("peer_tokens_per_s"), 8000.0);
  EXPECT_EQ(eager.at("ours_gflops"), 80.0);  // 4 x 2 GFLOP / 0.1 s
  EXPECT_EQ(eager.at("peer_gflops"), 62.5);
  EXPECT_EQ(eager.at("ours_mib"), 300.0);
  EXPECT_EQ(eager.at("peer_mib"), 400.0);
  EXPECT_NEAR(eager.at("ours_formula_mib"), 240, 0.5);
  EXPECT_EQ(eager.at("ours_formula_mib"), eager.at("peer_formula_mib"));
  EXPECT_EQ(eager.at("ours_setting"), "1f1b 1 1 uniform");
  EXPECT_EQ(report.at("failures")[0].at("reason"), "no compiler");
}

}  // namespace
}  // namespace tandem::gpt_suite_test
