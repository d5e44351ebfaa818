#include "tools/bench/gpu/suite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/tools/bench/sides.h"

namespace tandem::gpu_suite_test {
namespace {

using nlohmann::json;
using testing::Each;
using testing::ElementsAre;
using testing::Gt;
using testing::SizeIs;

TEST(GpuCases, AreOfTheSizesThatOthersMeasure) {
  const std::vector<Case> cases = GpuCases();
  ASSERT_EQ(cases.size(), 3u);
  EXPECT_EQ(cases[0].name, "resnet18");
  EXPECT_THAT(cases[0].workload.input_shape, ElementsAre(3, 224, 224));
  EXPECT_EQ(cases[0].workload.batch_size, 256);
  EXPECT_NEAR(cases[0].workload.gflop, 6 * 1.814, 0.03);
  EXPECT_EQ(cases[1].name, "gpt2");
  EXPECT_THAT(cases[1].workload.input_shape, ElementsAre(1024));
  EXPECT_EQ(cases[1].workload.batch_size, 8);
  EXPECT_EQ(cases[2].name, "mlp_small");
  EXPECT_EQ(cases[2].workload.batch_size, 32);
  for (const Case& each : cases) {
    EXPECT_EQ(each.layout.ranks(), 1);
    ASSERT_EQ(each.ours.size(), 1u);
    EXPECT_EQ(ToString(each.ours.front()), "1f1b 1 1 uniform static_graph");
  }
}

TEST(GpuCases, AreAsSmallAsIsAsked) {
  const std::vector<Case> cases =
      GpuCases({/*batch_size=*/3, /*image_size=*/32, /*tokens=*/17});
  EXPECT_THAT(cases[0].workload.input_shape, ElementsAre(3, 32, 32));
  EXPECT_THAT(cases[1].workload.input_shape, ElementsAre(17));
  for (const Case& each : cases) EXPECT_EQ(each.workload.batch_size, 3);
}

CaseResult ExampleResult() {
  CaseResult result;
  result.bench = GpuCases().front();  // 256 samples
  result.ours = MeasuredSide("tandem", {64, 64, 80}, 100);
  result.peers = {MeasuredSide("eager", {128, 128, 128}, 150),
                  FailedSide("cuda_graphs", "no memory")};
  return result;
}

TEST(GpuTables, HaveRatesAndMemoryAndWhoDidNotRun) {
  const json report = TablesJson(GpuTables({ExampleResult()}, "cpu"));
  ASSERT_EQ(report.at("cases").size(), 1u);
  const json& eager = report.at("cases")[0];
  EXPECT_EQ(eager.at("device"), "cpu");
  EXPECT_EQ(eager.at("peer"), "eager");
  EXPECT_EQ(eager.at("ratio"), 2.0);
  EXPECT_EQ(eager.at("ratio_min"), 1.6);
  EXPECT_EQ(eager.at("ratio_max"), 2.0);
  EXPECT_EQ(eager.at("ours_samples_per_s"), 4000.0);
  EXPECT_EQ(eager.at("peer_samples_per_s"), 2000.0);
  EXPECT_EQ(eager.at("ours_peak_mib"), 100.0);
  EXPECT_EQ(eager.at("peer_peak_mib"), 150.0);
  EXPECT_EQ(report.at("failures")[0].at("peer"), "cuda_graphs");
  EXPECT_EQ(report.at("failures")[0].at("reason"), "no memory");
}

// tandem's side, without peers, on what any machine has.
class GpuRunTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    options_.device = GetParam();
    options_.rounds = 2;
    options_.steps = 2;
    options_.folder = testing::TempDir() + "/" + GetParam();
    std::filesystem::create_directories(options_.folder);
    options_.python = absl::NotFoundError("no Python here");
  }

  ComparisonOptions options_;
};

TEST_P(GpuRunTest, EveryRoundIsTimedAndMemoryIsCounted) {
  const std::vector<Case> cases = GpuCases({/*batch_size=*/4, 32});
  for (const char* name : {"mlp_small", "resnet18"}) {
    const auto bench = CasesNamed(cases, {name});
    ASSERT_TRUE(bench.ok()) << bench.status();
    const auto result = RunGpuCase(bench->front(), /*peers=*/{}, options_);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->ours.failure, "");
    EXPECT_THAT(result->ours.step_ms, SizeIs(2));
    EXPECT_THAT(result->ours.step_ms, Each(Gt(0)));
    EXPECT_GT(result->ours.peak_mib, 0);
    EXPECT_THAT(result->peers, SizeIs(0));
  }
}

TEST_P(GpuRunTest, APeerThatIsNamedMustRun) {
  const Case bench = GpuCases({/*batch_size=*/4}).back();
  options_.folder += "_eager";
  std::filesystem::create_directories(options_.folder);
  EXPECT_EQ(
      RunGpuCase(bench, GpuPeers(GetParam(), {"eager"}), options_).status(),
      absl::NotFoundError("no Python here"));
}

INSTANTIATE_TEST_SUITE_P(Devices, GpuRunTest, testing::Values("cpu", "sim"));

std::vector<std::string> Names(const std::vector<Peer>& peers, bool may_fail) {
  std::vector<std::string> names;
  for (const Peer& each : peers) {
    if (each.may_fail == may_fail) names.push_back(each.name);
  }
  return names;
}

TEST(GpuPeers, AreThoseThatTheDeviceCan) {
  EXPECT_THAT(Names(GpuPeers("cpu", {}), false), ElementsAre("eager"));
  EXPECT_THAT(Names(GpuPeers("cpu", {}), true), ElementsAre("compile"));
  EXPECT_THAT(Names(GpuPeers("cuda", {}), false), ElementsAre("eager"));
  EXPECT_THAT(Names(GpuPeers("cuda", {}), true),
              ElementsAre("compile", "reduce_overhead", "cuda_graphs"));
  EXPECT_THAT(Names(GpuPeers("cuda", {"compile"}), false),
              ElementsAre("compile"));
  for (const Peer& each : GpuPeers("cuda", {})) {
    EXPECT_EQ(each.program, Program::kOneProcess);
    EXPECT_EQ(each.settings.front().recipe, each.name);
  }
}

}  // namespace
}  // namespace tandem::gpu_suite_test
