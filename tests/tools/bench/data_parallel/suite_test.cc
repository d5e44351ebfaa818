#include "tools/bench/data_parallel/suite.h"

#include <cstddef>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/sim/testing.h"
#include "core/testing/statuses.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/bench/data_parallel/methods.h"

namespace tandem {
namespace {

constexpr RunLength kShort = {2, 1, 1};

TEST(DataParallelBenchTest, AllWaysTrainTheSame) {
  for (BenchProblem problem : BenchProblems()) {
    problem.batch_size = 8;
    const auto ways = MakeTrainingMethods(problem, SimDevices(2));
    ASSERT_TRUE(ways.ok()) << ways.status();
    ASSERT_EQ(ways->size(), 4u);
    const auto results = CompareMethods(problem, *ways, kShort);
    ASSERT_TRUE(results.ok()) << results.status();
    for (const MethodResult& each : *results) {
      EXPECT_EQ(each.wall_ms.size(), 1u) << each.name;
      EXPECT_LE(each.apart, 1e-4) << each.name;
    }
    const nlohmann::json figures =
        TablesJson(DataParallelTables({{problem, *results}}, "2 devices"));
    const nlohmann::json& cases = figures["cases"];
    ASSERT_EQ(cases.size(), ways->size());
    for (size_t i = 0; i < ways->size(); ++i) {
      EXPECT_EQ(cases[i]["name"], problem.name);
      EXPECT_EQ(cases[i]["way"], (*ways)[i].name);
      EXPECT_GT(cases[i]["step_ms"], 0);
      EXPECT_GT(cases[i]["ratio"], 0);
    }
    EXPECT_EQ(cases[0]["ratio"], 1);
    EXPECT_EQ(figures["problems"][0]["devices"], "2 devices");
  }
}

class FixedLoss : public TrainingMethod {
 public:
  explicit FixedLoss(double loss) : loss_(loss) {}
  absl::StatusOr<double> Step(const BenchBatch&) override { return loss_; }

 private:
  double loss_;
};

TEST(DataParallelBenchTest, AnotherTrainingIsNotTimed) {
  BenchProblem problem = BenchProblems()[0];
  problem.batch_size = 2;
  std::vector<NamedMethod> ways;
  ways.push_back({"first", std::make_unique<FixedLoss>(1)});
  ways.push_back({"other", std::make_unique<FixedLoss>(1.001)});
  const auto results = CompareMethods(problem, ways, kShort);
  EXPECT_THAT(results.status(),
              Says("the loss of other is 1.001, that of first 1"));
}

TEST(RunDataParallelSuiteTest, RefusesWhatIsNotThere) {
  BenchFlags flags;
  flags.cases = {"wide", "deep"};
  EXPECT_EQ(RunDataParallelSuite(flags, "").status(),
            absl::InvalidArgumentError(
                "--cases: 'deep': expected one of wide, conv"));
  flags.cases = {"wide"};
  flags.devices = 1;
  EXPECT_EQ(RunDataParallelSuite(flags, "").status(),
            absl::InvalidArgumentError("--devices=1: expected at least 2"));
}

}  // namespace
}  // namespace tandem
