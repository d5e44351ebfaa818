// Options of a comparison, its cases, and the tables of its results.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/device/host_resources.h"
#include "tests/tools/bench/sides.h"
#include "tools/bench/comparison/report.h"
#include "tools/bench/comparison/run.h"

namespace tandem::comparison_test {
namespace {

using nlohmann::json;

TEST(ComparisonOptions, AreCheckedByTheFlagsNames) {
  ComparisonOptions options;
  EXPECT_TRUE(CheckOptions(options).ok());
  options.steps = -1;
  EXPECT_EQ(CheckOptions(options),
            absl::InvalidArgumentError("--steps=-1: expected at least 0"));
  options.rounds = 0;
  EXPECT_EQ(CheckOptions(options),
            absl::InvalidArgumentError("--rounds=0: expected at least 1"));
  options.threads = 0;
  EXPECT_EQ(CheckOptions(options),
            absl::InvalidArgumentError("--threads=0: expected at least 1"));
}

TEST(ComparisonOptions, TakeTheCasesStepsUnlessTheySayMore) {
  ComparisonOptions options;
  Workload workload;
  workload.steps = 8;
  EXPECT_EQ(options.StepsPerRound(workload), 8);
  options.steps = 3;
  EXPECT_EQ(options.StepsPerRound(workload), 3);
}

TEST(InOwnFolder, IsOneForEachName) {
  ComparisonOptions options;
  options.rounds = 3;
  options.folder = testing::TempDir();
  const auto own = InOwnFolder(options, "gpt/2x1");
  ASSERT_TRUE(own.ok()) << own.status();
  EXPECT_EQ(own->rounds, 3);
  EXPECT_EQ(own->folder, options.folder + "/gpt_2x1");
  options.folder = "/no/such";
  EXPECT_FALSE(InOwnFolder(options, "gpt").ok());
}

TEST(StartContender, SaysWhyThereIsNoPython) {
  ComparisonOptions options;
  options.python = absl::NotFoundError("no Python here");
  options.folder = testing::TempDir();
  for (const Program program : {Program::kPyTorch, Program::kOneProcess}) {
    const Contender contender =
        StartContender("eager", program, Case(), options);
    EXPECT_EQ(contender.name(), "eager");
    EXPECT_EQ(contender.status(), absl::NotFoundError("no Python here"));
  }
}

TEST(ComparisonFlags, BecomeOptions) {
  BenchFlags flags;
  flags.python = "/no/such/python";
  flags.threads = 2;
  flags.steps = 5;
  const auto options = OptionsFromFlags(flags, /*usual_rounds=*/3, "here");
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->threads, 2);
  EXPECT_EQ(options->steps, 5);
  EXPECT_EQ(options->rounds, 3);
  EXPECT_EQ(options->folder, "here");
  EXPECT_EQ(options->python.status().code(), absl::StatusCode::kNotFound);
  flags.rounds = 4;
  EXPECT_EQ(OptionsFromFlags(flags, 3, "here")->rounds, 4);
  flags.rounds = 0;
  EXPECT_EQ(OptionsFromFlags(flags, 3, "here").status(),
            absl::InvalidArgumentError("--rounds=0: expected at least 1"));
}

TEST(ComparisonFlags, ChooseCasesInDtypes) {
  Case one;
  one.name = one.workload.model = "a";
  Case other = one;
  other.name = other.workload.model = "b";
  BenchFlags flags;
  EXPECT_EQ(CasesFromFlags({one, other}, flags)->size(), 2u);
  flags.cases = {"b"};
  flags.dtypes = {"fp32", "bf16"};
  const auto cases = CasesFromFlags({one, other}, flags);
  ASSERT_TRUE(cases.ok()) << cases.status();
  ASSERT_EQ(cases->size(), 2u);
  EXPECT_EQ((*cases)[0].name, "b");
  EXPECT_EQ((*cases)[1].name, "b:bf16");
  flags.cases = {"c"};
  EXPECT_EQ(CasesFromFlags({one}, flags).status().code(),
            absl::StatusCode::kInvalidArgument);
}

CaseResult Example() {
  CaseResult result;
  result.bench.name = "mlp/2x1";
  result.bench.workload.batch_size = 6;
  result.ours = MeasuredSide("tandem", {10, 20, 12});
  result.peers = {MeasuredSide("eager", {15, 20, 24}),
                  FailedSide("compile", "no compiler")};
  return result;
}

json ReportOf(const CaseTables& tables) { return TablesJson(tables.tables()); }

TEST(CaseTables, HoldFiguresAndFailures) {
  CaseTables tables({{"more"}, {"setting"}});
  tables.Add(Example(), [](const SideResult& peer) -> std::vector<json> {
    return {1, "of " + peer.name};
  });
  const json report = ReportOf(tables);
  const json expected = {
      {"name", "mlp/2x1"}, {"ours_ms", 12.0},    {"peer_ms", 20.0},
      {"peer", "eager"},   {"ratio", 20.0 / 12}, {"ratio_min", 1.0},
      {"ratio_max", 2.0},  {"more", 1},          {"setting", "of eager"}};
  EXPECT_EQ(report.at("cases"), json::array({expected}));
  const json failure = {
      {"name", "mlp/2x1"}, {"peer", "compile"}, {"reason", "no compiler"}};
  EXPECT_EQ(report.at("failures"), json::array({failure}));
  EXPECT_FALSE(report.contains("kernels"));
}

TEST(CaseTables, HaveTheFloorOfACaseThatHasOne) {
  const auto none = [](const SideResult&) { return std::vector<json>(); };
  CaseResult result = Example();
  CaseTables tables({});
  tables.Add(result, none);
  EXPECT_FALSE(ReportOf(tables).contains("floors"));
  result.bench.layout.devices = 2;
  // 10 ms of products; 40 MiB at 20 MiB a millisecond are 2.
  result.ours.floor = MeasuredFloor{10, 40 << 20, (20 << 20) * 1e-6, {}};
  tables.Add(result, none);
  const json report = ReportOf(tables);
  ASSERT_EQ(report.at("floors").size(), 1u);
  const json& floor = report.at("floors")[0];
  EXPECT_EQ(floor.at("step_ms"), 12);
  EXPECT_EQ(floor.at("products_ms"), 10);
  EXPECT_EQ(floor.at("moved_mib"), 40);
  EXPECT_NEAR(floor.at("memory_gb_per_s"), 20.97152, 1e-9);
  EXPECT_NEAR(floor.at("moving_ms"), 2, 1e-9);
  EXPECT_NEAR(floor.at("floor_ms"), 6, 1e-9);  // two devices
  EXPECT_NEAR(floor.at("of_a_step"), 0.5, 1e-9);
}

TEST(TablesWithMemory, HaveItBesideTimes) {
  CaseResult result;
  result.bench.name = "gpt_tiny";
  result.ours = MeasuredSide("tandem", {10, 20, 12}, 300);
  result.peers = {MeasuredSide("fsdp", {30, 40, 24}, 700)};
  const json report = TablesJson(TablesWithMemory({result}));
  ASSERT_EQ(report.at("cases").size(), 1u);
  const json& row = report.at("cases")[0];
  EXPECT_EQ(row.at("name"), "gpt_tiny");
  EXPECT_EQ(row.at("ratio"), 2.5);  // 30 / 12
  EXPECT_EQ(row.at("ours_mib"), 300);
  EXPECT_EQ(row.at("peer_mib"), 700);
}

TEST(CaseTables, SayWhatEachSideMultipliesWithAndOnWhichProcessor) {
  CaseResult result = Example();
  result.ours.kernels = "our library";
  result.peers[0].kernels = "its library";
  const auto none = [](const SideResult&) { return std::vector<json>(); };
  CaseTables tables({});
  tables.Add(result, none);
  tables.Add(result, none);  // said once
  const json report = ReportOf(tables);
  EXPECT_EQ(report.at("cases").size(), 2u);
  EXPECT_EQ(report.at("failures").size(), 2u);
  const json ours = {{"name", "fp32"},
                     {"side", "tandem"},
                     {"kernels", "our library"},
                     {"processor", DescribeProcessor()}};
  const json peers = {{"name", "fp32"},
                      {"side", "eager"},
                      {"kernels", "its library"},
                      {"processor", DescribeProcessor()}};
  EXPECT_EQ(report.at("kernels"), json::array({ours, peers}));
}

TEST(SamplesPerSecond, AreOfTheMedianStep) {
  const CaseResult result = Example();
  EXPECT_DOUBLE_EQ(SamplesPerSecond(result, result.ours), 500);
  EXPECT_DOUBLE_EQ(SamplesPerSecond(result, result.peers[0]), 300);
}

TEST(HasFailures, SeesAPeerWithoutFigures) {
  CaseResult result = Example();
  EXPECT_TRUE(HasFailures(result));
  result.peers.pop_back();
  EXPECT_FALSE(HasFailures(result));
}

}  // namespace
}  // namespace tandem::comparison_test
