#include "tools/bench/data_parallel/run.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/sim/testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/bench/data_parallel/nets.h"
#include "tools/bench/data_parallel/ways.h"

namespace tandem {
namespace {

using testing::HasSubstr;

constexpr RunLength kShort = {2, 1, 1};

TEST(DataParallelBenchTest, AllWaysTrainTheSame) {
  for (BenchProblem problem : BenchProblems()) {
    problem.batch_size = 8;
    const auto ways = MakeTrainingWays(problem, SimDevices(2));
    ASSERT_TRUE(ways.ok()) << ways.status();
    ASSERT_EQ(ways->size(), 4u);
    const auto results = CompareWays(problem, *ways, kShort);
    ASSERT_TRUE(results.ok()) << results.status();
    for (const WayResult& each : *results) {
      EXPECT_EQ(each.wall_ms.size(), 1u) << each.name;
      EXPECT_LE(each.apart, 1e-4) << each.name;
    }
    const std::string table = WaysTable(problem, *results);
    for (const NamedWay& each : *ways) EXPECT_THAT(table, HasSubstr(each.name));
  }
}

class FixedLoss : public TrainingWay {
 public:
  explicit FixedLoss(double loss) : loss_(loss) {}
  absl::StatusOr<double> Step(const BenchBatch&) override { return loss_; }

 private:
  double loss_;
};

TEST(DataParallelBenchTest, AnotherTrainingIsNotTimed) {
  BenchProblem problem = BenchProblems()[0];
  problem.batch_size = 2;
  std::vector<NamedWay> ways;
  ways.push_back({"first", std::make_unique<FixedLoss>(1)});
  ways.push_back({"other", std::make_unique<FixedLoss>(1.001)});
  const auto results = CompareWays(problem, ways, kShort);
  EXPECT_THAT(std::string(results.status().message()),
              HasSubstr("the loss of other is 1.001, that of first 1"));
}

}  // namespace
}  // namespace tandem
