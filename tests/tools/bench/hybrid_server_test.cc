// Ranks of tandem's side of the hybrid's benchmark, as processes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/environment.h"
#include "tools/bench/answers.h"
#include "tools/bench/bench_layout.h"
#include "tools/bench/overlap_times.h"
#include "tools/bench/pipeline_server.h"
#include "tools/bench/side.h"

namespace tandem {
namespace {

using nlohmann::json;

class HybridServerTest : public testing::Test {
 protected:
  void SetUp() override {
    PipelineServerOptions inputs;
    inputs.model = "mlp_deep";
    inputs.inputs = InputsPath();
    ASSERT_TRUE(WriteInputsOf(inputs).ok());
  }

  static std::string InputsPath() { return testing::TempDir() + "/inputs"; }

  std::unique_ptr<Side> Start(const BenchLayout& layout) {
    SideOptions options;
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    options.name = absl::StrCat(test->name(), started_++);
    options.folder = testing::TempDir();
    options.environment = Environment::OfProcess();
    options.ranks = layout.ranks();
    options.command = {"tools/bench/pipeline_rank",
                       "--model=mlp_deep",
                       "--learning_rate=3",
                       absl::StrCat("--pipe=", layout.pipe),
                       absl::StrCat("--devices=", layout.devices),
                       "--inputs=" + InputsPath()};
    auto side = Side::Start(options);
    EXPECT_TRUE(side.ok()) << side.status();
    return side.ok() ? *std::move(side) : nullptr;
  }

  static std::vector<json> Ask(Side& side, const std::string& command) {
    const auto answers = side.Ask(command, std::chrono::minutes(2));
    EXPECT_TRUE(answers.ok()) << answers.status();
    return answers.ok() ? *answers : std::vector<json>();
  }

  static std::vector<double> Losses(Side& side, const std::string& setting) {
    Ask(side, "use " + setting);
    return SumOfLists(Ask(side, "losses 4"), "losses");
  }

 private:
  int started_ = 0;
};

TEST_F(HybridServerTest, EveryLayoutTrainsTheSame) {
  const auto one = Start({1, 1, 1});
  const std::vector<double> expected = Losses(*one, "1f1b 1 1 uniform");
  const std::vector<double> ordered =
      Losses(*one, "1f1b 1 4 uniform reproducible");
  ASSERT_EQ(expected.size(), 4u);
  for (const BenchLayout& layout : std::vector<BenchLayout>{
           {2, 1, 1}, {1, 1, 2}, {1, 2, 1}, {2, 1, 2}, {2, 2, 1}}) {
    SCOPED_TRACE(
        absl::StrCat(layout.replicas, " ", layout.pipe, " ", layout.devices));
    const auto side = Start(layout);
    const std::string count = layout.replicas == 1 ? "4" : "2";
    const std::vector<double> losses =
        Losses(*side, "1f1b 1 " + count + " time");
    ASSERT_EQ(losses.size(), 4u);
    for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(losses[i], expected[i], 2e-5);
    EXPECT_EQ(Losses(*side, "1f1b 1 " + count + " uniform reproducible"),
              ordered);
  }
}

TEST_F(HybridServerTest, TellsWhenBucketsAndBackwardsWereUnderWay) {
  const auto side = Start({2, 2, 1});
  Ask(*side, "use 1f1b 1 4 uniform");
  Ask(*side, "losses 2");
  const std::vector<json> answers = Ask(*side, "overlap 3");
  ASSERT_EQ(answers.size(), 4u);
  for (const json& answer : answers) {
    ASSERT_EQ(answer.at("steps").size(), 3u);
    for (const json& step : answer.at("steps")) {
      EXPECT_EQ(step.at("backwards").size(), 4u);  // microbatches
      EXPECT_GE(step.at("all_reduces").size(), 1u);
    }
  }
  const OverlapTimes times = OverlapOf(answers, 2);
  EXPECT_GT(times.all_reduce_ms, 0);
  EXPECT_LE(times.hidden_ms, times.all_reduce_ms);
}

}  // namespace
}  // namespace tandem
