// Tandem's ranks, as processes, without peers, and what they are given.

#include "tools/bench/rank/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/environment.h"
#include "core/testing/statuses.h"
#include "tests/tools/bench/sides.h"
#include "tools/bench/case/case.h"
#include "tools/bench/measure/overlap_times.h"
#include "tools/bench/process/side.h"
#include "tools/bench/rank/inputs.h"

namespace tandem::server_test {
namespace {

using nlohmann::json;
using std::chrono::minutes;

constexpr char kDdp[] = "use 1f1b 1 1 uniform static_graph";

class RankServerTest : public testing::Test {
 protected:
  std::unique_ptr<Side> Start(const std::string& model, const Layout& layout,
                              double learning_rate = 0) {
    RankOptions inputs;
    inputs.model = model;
    inputs.inputs = folder_ + "/inputs";
    EXPECT_TRUE(WriteRankInputs(inputs).ok());
    SideOptions options;
    options.name = absl::StrCat("tandem", started_++);
    options.ranks = layout.ranks();
    options.folder = folder_;
    options.environment = Environment::OfProcess();
    options.command = {"tools/bench/rank/rank",
                       "--model=" + model,
                       "--inputs=" + inputs.inputs,
                       absl::StrCat("--learning_rate=", learning_rate),
                       absl::StrCat("--pipe=", layout.pipe),
                       absl::StrCat("--devices=", layout.devices)};
    auto side = Side::Start(options);
    EXPECT_TRUE(side.ok()) << side.status();
    return side.ok() ? *std::move(side) : nullptr;
  }

  static std::vector<json> AskAll(Side& side, const std::string& command) {
    const auto answers = side.Ask(command, minutes(2));
    EXPECT_TRUE(answers.ok()) << answers.status();
    return answers.ok() ? *answers : std::vector<json>();
  }

  static json Ask(Side& side, const std::string& command) {
    const std::vector<json> answers = AskAll(side, command);
    return answers.empty() ? json() : answers.front();
  }

  static std::vector<double> Losses(Side& side, const std::string& setting) {
    AskAll(side, "use " + setting);
    return SumOfLists(AskAll(side, "losses 4"), "losses");
  }

  static absl::Status Refusal(Side& side, const std::string& command) {
    return side.Ask(command, minutes(2)).status();
  }

  const std::string folder_ = TestFolder();

 private:
  int started_ = 0;
};

TEST_F(RankServerTest, ReplicasTrainAndMeasureThemselves) {
  const auto side = Start("mlp_small", {2, 1, 1});
  AskAll(*side, kDdp);
  const auto values = SumOfLists(AskAll(*side, "losses 20"), "losses");
  ASSERT_EQ(values.size(), 20u);
  EXPECT_NEAR(values[0], std::log(64), 0.1);  // 64 classes, untrained
  EXPECT_LT(values[16], values[0]);           // of the same batch
  for (const json& answer : AskAll(*side, "steps 3")) {
    EXPECT_GT(answer.at("ms"), 0);
    EXPECT_GT(answer.at("cpu_ms"), 0);
    EXPECT_GE(answer.at("faults"), 0);
  }
  for (const json& answer : AskAll(*side, "alone 3")) {
    EXPECT_GT(answer.at("ms"), 0);
  }
  for (const json& answer : AskAll(*side, "communication 3")) {
    EXPECT_GT(answer.at("comm_ms"), 0);
    EXPECT_LE(answer.at("exposed_ms"), answer.at("comm_ms"));
  }
  EXPECT_GT(AskAll(*side, "memory")[1].at("peak_mib"), 10);
  EXPECT_GT(AskAll(*side, "gemm")[0].at("mkl_gflops"), 0);
  EXPECT_GT(AskAll(*side, "gemm")[1].at("one_dnn_gflops"), 0);
  const json all_reduce = Ask(*side, "all_reduce");
  EXPECT_GT(all_reduce.at("ms"), 0);
  EXPECT_GT(all_reduce.at("gloo_ms"), 0);
}

TEST_F(RankServerTest, ReplicasOfBothStrategiesTrainTheSame) {
  const auto side = Start("mlp_small", {2, 1, 1}, /*learning_rate=*/0.1);
  const std::vector<double> hybrid = Losses(*side, "1f1b 1 1 uniform");
  ASSERT_EQ(hybrid.size(), 4u);
  for (const char* recipe :
       {"static_graph", "find_unused", "ddp", kFsdpRecipe}) {
    const std::vector<double> ddp =
        Losses(*side, std::string("1f1b 1 1 uniform ") + recipe);
    ASSERT_EQ(ddp.size(), 4u);
    for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(ddp[i], hybrid[i], 1e-5);
  }
}

TEST_F(RankServerTest, RanksThatShareLayersTrainTheSame) {
  const auto one = Start("gpt_tiny", {1, 1, 1});
  const std::vector<double> expected = Losses(*one, "1f1b 1 1 uniform");
  const auto shared = Start("gpt_tiny", {1, 2, 1});
  for (const char* recipe : {kTensorRecipe, kTensorSequenceRecipe}) {
    const std::vector<double> losses =
        Losses(*shared, std::string("1f1b 1 1 uniform ") + recipe);
    ASSERT_EQ(losses.size(), expected.size());
    for (size_t i = 0; i < losses.size(); ++i) {
      EXPECT_NEAR(losses[i], expected[i], 1e-4) << recipe;
    }
    for (const json& whole : AskAll(*shared, "alone 1")) {
      EXPECT_GT(whole.at("ms"), 0);
    }
  }
}

TEST_F(RankServerTest, TheProfileNamesTheOptimizer) {
  const auto side = Start("mlp_small", {1, 1, 1});
  Ask(*side, kDdp);
  const json profile = Ask(*side, "profile 2");
  EXPECT_GT(profile.at("cpu_ms"), 0);
  bool found = false;
  for (const json& op : profile.at("ops")) {
    if (op.at("name") != "aten::_fused_sgd_") continue;
    EXPECT_GT(op.at("ms"), 0);
    EXPECT_EQ(op.at("calls"), 1);
    found = true;
  }
  EXPECT_TRUE(found);
}

TEST_F(RankServerTest, AFloorIsAPartOfAStep) {
#ifndef NDEBUG
  GTEST_SKIP() << "LibTorch's records have another layout in debug builds";
#endif
  const auto side = Start("mlp_small", {1, 1, 1});
  Ask(*side, kDdp);
  const json floor = Ask(*side, "floor");
  EXPECT_GT(floor.at("ms"), 0);
  EXPECT_EQ(floor.at("bytes"), 0) << "nothing of it is larger than caches";
  EXPECT_GT(floor.at("gb_per_s"), 0);
  double calls = 0;
  for (const json& each : floor.at("products")) {
    calls += each.at("calls").get<double>();
  }
  // Calls of 8 linear layers: forward, weights, and inputs but the first's.
  EXPECT_EQ(calls, 8 + 8 + 7);
}

TEST_F(RankServerTest, AFloorIsOfOneCoreWhileTheOthersTrain) {
#ifndef NDEBUG
  GTEST_SKIP() << "LibTorch's records have another layout in debug builds";
#endif
  const auto side = Start("mlp_small", {1, 1, 3});
  Ask(*side, "use 1f1b 1 2 uniform");
  const json floor = Ask(*side, "floor");
  double calls = 0;
  for (const json& each : floor.at("products")) {
    calls += each.at("calls").get<double>();
  }
  EXPECT_EQ(calls, 8 + 8 + 7) << "of the whole model, and of no other core";
}

TEST_F(RankServerTest, EverySettingTrainsTheSame) {
  const auto side = Start("mlp_deep", {1, 1, 2});
  Ask(*side, "use 1f1b 1 1 uniform");
  const json expected = Ask(*side, "losses 2").at("losses");
  for (const char* setting :
       {"gpipe 1 4 uniform", "1f1b 1 16 time", "interleaved_1f1b 2 4 uniform",
        "looped_bfs 2 2 uniform", "zb_h1 1 8 time", "zb_v 2 4 time"}) {
    const json cuts = Ask(*side, std::string("use ") + setting).at("cuts");
    EXPECT_EQ(
        cuts.size(),
        setting[0] == 'i' || setting[0] == 'l' || setting[3] == 'v' ? 3u : 1u)
        << setting;
    const json losses = Ask(*side, "losses 2").at("losses");
    for (int i : {0, 1}) {
      EXPECT_NEAR(losses[i].get<double>(), expected[i].get<double>(), 1e-5)
          << setting;
    }
  }
}

TEST_F(RankServerTest, APipelineMeasuresItself) {
  const auto side = Start("mlp_deep", {1, 1, 2});
  Ask(*side, "use zb_h1 1 4 uniform");
  EXPECT_GT(Ask(*side, "steps 2").at("ms"), 0);
  EXPECT_GT(Ask(*side, "alone 1").at("ms"), 0);
  EXPECT_GT(Ask(*side, "memory").at("peak_mib"), 10);
  const json stages = Ask(*side, "stages 1");
  for (const char* part : {"forward", "backward_input", "backward_weight"}) {
    ASSERT_EQ(stages.at(part).size(), 2u);
    EXPECT_GT(stages.at(part)[0], 0);
    EXPECT_GT(stages.at(part)[1], 0);
  }
  EXPECT_GT(stages.at("optimizer"), 0);
  // The stages are those of the setting in use.
  Ask(*side, "use interleaved_1f1b 2 2 uniform");
  EXPECT_EQ(Ask(*side, "stages 1").at("forward").size(), 4u);
}

TEST_F(RankServerTest, EveryLayoutTrainsTheSame) {
  const auto one = Start("mlp_deep", {1, 1, 1}, /*learning_rate=*/3);
  const std::vector<double> expected = Losses(*one, "1f1b 1 1 uniform");
  const std::vector<double> ordered =
      Losses(*one, "1f1b 1 4 uniform reproducible");
  ASSERT_EQ(expected.size(), 4u);
  for (const Layout& layout : std::vector<Layout>{
           {2, 1, 1}, {1, 1, 2}, {1, 2, 1}, {2, 1, 2}, {2, 2, 1}}) {
    SCOPED_TRACE(
        absl::StrCat(layout.replicas, " ", layout.pipe, " ", layout.devices));
    const auto side = Start("mlp_deep", layout, /*learning_rate=*/3);
    const std::string count = layout.replicas == 1 ? "4" : "2";
    const std::vector<double> losses =
        Losses(*side, "1f1b 1 " + count + " time");
    ASSERT_EQ(losses.size(), 4u);
    for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(losses[i], expected[i], 2e-5);
    EXPECT_EQ(Losses(*side, "1f1b 1 " + count + " uniform reproducible"),
              ordered);
  }
}

TEST_F(RankServerTest, TellsWhenBucketsAndBackwardsWereUnderWay) {
  const auto side = Start("mlp_deep", {2, 2, 1}, /*learning_rate=*/3);
  AskAll(*side, "use 1f1b 1 4 uniform");
  AskAll(*side, "losses 2");
  const std::vector<json> answers = AskAll(*side, "overlap 3");
  ASSERT_EQ(answers.size(), 4u);
  for (const json& answer : answers) {
    ASSERT_EQ(answer.at("steps").size(), 3u);
    for (const json& step : answer.at("steps")) {
      EXPECT_EQ(step.at("backwards").size(), 4u);  // microbatches
      EXPECT_GE(step.at("all_reduces").size(), 1u);
    }
  }
  const OverlapTimes times = AllReduceOverlap(answers, 2);
  EXPECT_GT(times.all_reduce_ms, 0);
  EXPECT_LE(times.hidden_ms, times.all_reduce_ms);
}

TEST_F(RankServerTest, RefusesWhatItDoesNotKnow) {
  EXPECT_THAT(Refusal(*Start("mlp_small", {1, 1, 1}), "dance"),
              Says("'dance'"));
  EXPECT_THAT(Refusal(*Start("mlp_small", {1, 1, 1}), "steps 1"),
              Says("no setting"));
  EXPECT_THAT(Refusal(*Start("mlp_small", {1, 1, 1}), "use 1f1b 1 4 luck"),
              Says("luck"));
  const auto one = Start("mlp_small", {1, 1, 1});
  Ask(*one, kDdp);
  EXPECT_THAT(Refusal(*one, "all_reduce"), Says("one rank"));
}

TEST_F(RankServerTest, RefusesAModelThatIsNone) {
  RankOptions options;
  options.model = "vgg";
  EXPECT_THAT(WriteRankInputs(options), Says("'vgg'"));
}

TEST(InputsTest, AreTheSameEachTimeAndDifferByBatch) {
  const Workload workload = *WorkloadNamed("gpt_tiny");
  const std::string folder = testing::TempDir();
  for (const char* name : {"/a", "/b"}) {
    ASSERT_TRUE(WriteInputsFile(workload, folder + name).ok());
  }
  const auto first = ReadInputsFile(workload, folder + "/a", 0, 1);
  const auto again = ReadInputsFile(workload, folder + "/b", 0, 1);
  ASSERT_TRUE(first.ok() && again.ok());
  ASSERT_EQ(first->batches.size(), static_cast<size_t>(kBatches));
  EXPECT_EQ(first->batches[0].size, workload.batch_size);
  EXPECT_TRUE(first->batches[0].inputs.equal(again->batches[0].inputs));
  EXPECT_FALSE(first->batches[0].inputs.equal(first->batches[1].inputs));
  EXPECT_FALSE(first->state.empty());
}

TEST(InputsTest, AReplicaTakesItsPartOfEachBatch) {
  Workload workload = *WorkloadNamed("mlp_small");
  workload.batch_size = 5;
  const std::string path = testing::TempDir() + "/inputs";
  ASSERT_TRUE(WriteInputsFile(workload, path).ok());
  const auto whole = ReadInputsFile(workload, path, 0, 1);
  const auto first = ReadInputsFile(workload, path, 0, 2);
  const auto second = ReadInputsFile(workload, path, 1, 2);
  ASSERT_TRUE(whole.ok() && first.ok() && second.ok());
  for (size_t i = 0; i < whole->batches.size(); ++i) {
    const at::Tensor& inputs = whole->batches[i].inputs;
    EXPECT_TRUE(first->batches[i].inputs.equal(inputs.narrow(0, 0, 3)));
    EXPECT_TRUE(second->batches[i].inputs.equal(inputs.narrow(0, 3, 2)));
    EXPECT_TRUE(second->batches[i].targets.equal(
        whole->batches[i].targets.narrow(0, 3, 2)));
    EXPECT_EQ(second->batches[i].size, 2);
  }
}

TEST(InputsTest, AFileThatIsNotThereIsAnError) {
  EXPECT_FALSE(
      ReadInputsFile(*WorkloadNamed("mlp_small"), "/no/such/file", 0, 1).ok());
}

}  // namespace
}  // namespace tandem::server_test
