#include "tools/bench/ddp/suite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/tools/bench/sides.h"

namespace tandem::ddp_suite_test {
namespace {

using nlohmann::json;

TEST(DdpCases, AreFoundByName) {
  const std::vector<Case> all = DdpCases(2);
  EXPECT_EQ(CasesNamed(all, {})->size(), 4u);
  const auto chosen = CasesNamed(all, {"gpt_tiny", "mlp_small"});
  ASSERT_TRUE(chosen.ok());
  ASSERT_EQ(chosen->size(), 2u);
  EXPECT_EQ((*chosen)[0].name, "mlp_small");
  EXPECT_EQ((*chosen)[1].name, "gpt_tiny");
  const absl::Status unknown = CasesNamed(all, {"vgg"}).status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(unknown.message()),
            "unknown case 'vgg': known are mlp_small, mlp_wide, resnet18, "
            "gpt_tiny");
}

TEST(DdpCases, HaveABatchForEachRank) {
  for (int ranks : {2, 3}) {
    const Case small = DdpCases(ranks).front();
    EXPECT_EQ(small.workload.batch_size, 32 * ranks);
    EXPECT_EQ(small.layout.ranks(), ranks);
    EXPECT_EQ(small.layout.replicas, ranks);
    ASSERT_EQ(small.ours.size(), 2u);
    EXPECT_EQ(ToString(small.ours.front()), "1f1b 1 1 uniform ddp");
    EXPECT_EQ(ToString(small.ours.back()), "1f1b 1 1 uniform static_graph");
  }
}

DdpResult ExampleResult() {
  DdpResult result;
  result.bench = DdpCases(2).front();
  // A rank's half of the batch takes 3 GFLOP.
  result.bench.workload.gflop = 3 / 32.0;
  result.ours = MeasuredSide("tandem", {1, 2, 3}, 200);
  result.ours.alone_ms = {1.5};
  result.peers = {MeasuredSide("eager", {4, 4, 6}, 500),
                  FailedSide("compile", "no compiler")};
  result.peers[0].alone_ms = {2};
  result.ours.comm_ms = 2;
  result.ours.exposed_ms = 0.5;
  result.mkl_gflops = 50;
  result.one_dnn_gflops = 100;
  result.all_reduce_ms = 2;
  result.gloo_all_reduce_ms = 7;
  result.profile = {{"cpu_ms", 10.0},
                    {"ops",
                     {{{"name", "aten::mm"}, {"ms", 4.0}, {"calls", 2.0}},
                      {{"name", "aten::addmm"}, {"ms", 2.0}, {"calls", 1.0}},
                      {{"name", "aten::sum"}, {"ms", 1.0}, {"calls", 3.0}}}}};
  MeasuredFloor floor = {1.05, 3 << 20, (3 << 20) / 0.15 * 1e-6, {}};
  floor.parts = {
      {"ms", 1.05},
      {"products",
       {{{"name", "aten::mm"},
         {"operands", "Float[2, 3]/[3, 1]"},
         {"ms", 1.5},
         {"calls", 2.0}}}},
      {"bytes", 3 << 20},
      {"passes",
       {{{"name", "aten::_fused_sgd_"}, {"bytes", 3 << 20}, {"calls", 1}}}}};
  result.ours.floor = floor;
  return result;
}

json Report(const StartupResult& startup = {}) {
  return TablesJson(DdpTables({ExampleResult()}, startup));
}

TEST(DdpTables, HoldTheFiguresOfThePeersThatRan) {
  const json report = Report({500, 4000});
  ASSERT_EQ(report.at("cases").size(), 1u);
  const json expected = {
      {"name", "mlp_small"}, {"ours_ms", 2.0},    {"peer_ms", 4.0},
      {"peer", "eager"},     {"ratio", 2.0},      {"ratio_min", 2.0},
      {"ratio_max", 4.0},    {"ours_mib", 200.0}, {"peer_mib", 500.0}};
  EXPECT_EQ(report.at("cases")[0], expected);
  EXPECT_EQ(report.at("startup")[0].at("ratio"), 8);
}

TEST(DdpTables, SayWhyAPeerDidNotRun) {
  const json expected = {
      {{"name", "mlp_small"}, {"peer", "compile"}, {"reason", "no compiler"}}};
  EXPECT_EQ(Report().at("failures"), expected);
}

TEST(DdpTables, LeaveOutAStartUpThatWasNotMeasured) {
  EXPECT_FALSE(Report().contains("startup"));
}

TEST(DdpTables, ShowTheShareOfCommunicationThatIsExposed) {
  const json breakdown = Report().at("breakdown");
  ASSERT_EQ(breakdown.size(), 2u);  // without the peer that failed
  EXPECT_EQ(breakdown[0].at("side"), "tandem");
  EXPECT_EQ(breakdown[0].at("share"), 0.25);
  EXPECT_EQ(breakdown[1].at("side"), "eager");
  EXPECT_EQ(breakdown[1].at("alone_ms"), 2);
  EXPECT_EQ(breakdown[1].at("share"), 0);
}

TEST(DdpTables, SayWhatTheMachineCouldDo) {
  const json limits = Report().at("limits")[0];
  EXPECT_NEAR(limits.at("step_gflop"), 3, 1e-12);
  EXPECT_NEAR(limits.at("at_peak_ms"), 30, 1e-12);  // 3 GFLOP at 100 GFLOP/s
  EXPECT_EQ(limits.at("mkl_gflops"), 50);
  EXPECT_EQ(limits.at("all_reduce_ms"), 2);
  EXPECT_EQ(limits.at("gloo_all_reduce_ms"), 7);
  EXPECT_EQ(Report().at("floors").size(), 1u);
}

TEST(ProfileTables, SumKindsOfOperators) {
  const json report = TablesJson(ProfileTables({ExampleResult()}));
  const json expected = {{"name", "mlp_small"}, {"cpu_ms", 10.0},
                         {"matrices_ms", 6.0},  {"optimizer_ms", 0.0},
                         {"rest_ms", 1.0},      {"outside_operators_ms", 3.0}};
  EXPECT_EQ(report.at("profile")[0], expected);
  EXPECT_EQ(report.at("operators").size(), 3u);
  EXPECT_EQ(report.at("operators")[0].at("operator"), "aten::mm");
  EXPECT_EQ(report.at("operators")[0].at("calls"), 2);
  const json product = {{"name", "mlp_small"},
                        {"ms", 1.5},
                        {"calls", 2.0},
                        {"operator", "aten::mm"},
                        {"operands", "Float[2, 3]/[3, 1]"}};
  EXPECT_EQ(report.at("products"), json::array({product}));
  const json pass = report.at("passes")[0];
  EXPECT_EQ(pass.at("operator"), "aten::_fused_sgd_");
  EXPECT_EQ(pass.at("moved_mib"), 3);
  EXPECT_NEAR(pass.at("moving_ms"), 0.15, 1e-12);
}

}  // namespace
}  // namespace tandem::ddp_suite_test
