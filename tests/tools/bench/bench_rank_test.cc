// Real ranks of the benchmark, without peers.

#include "tools/bench/bench_rank.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/base/environment.h"
#include "tools/bench/bench_case.h"
#include "tools/bench/bench_inputs.h"
#include "tools/bench/side.h"

namespace tandem {
namespace {

using nlohmann::json;
using std::chrono::minutes;

constexpr char kProgram[] = "tools/bench/ddp_rank";

class BenchRankTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = testing::TempDir() + "/" + test->name();
    std::filesystem::create_directories(folder_);
  }

  std::unique_ptr<Side> Start(const std::string& model, int ranks) {
    const BenchCase bench = CasesNamed({model})->front();
    const std::string inputs = folder_ + "/inputs";
    EXPECT_TRUE(WriteBenchInputs(bench, ranks, inputs).ok());
    SideOptions options;
    options.name = "tandem";
    options.ranks = ranks;
    options.folder = folder_;
    options.environment = Environment::OfProcess();
    options.command = {kProgram, "--model=" + model, "--inputs=" + inputs};
    auto side = Side::Start(options);
    EXPECT_TRUE(side.ok()) << side.status();
    return *std::move(side);
  }

  static std::vector<json> Ask(Side& side, const std::string& command) {
    auto answers = side.Ask(command, minutes(2));
    EXPECT_TRUE(answers.ok()) << answers.status();
    return answers.ok() ? *std::move(answers) : std::vector<json>();
  }

  std::string folder_;
};

TEST_F(BenchRankTest, RanksTrainAndMeasureThemselves) {
  const auto side = Start("mlp_small", 2);
  const auto losses = Ask(*side, "losses 20");
  ASSERT_EQ(losses.size(), 2u);
  EXPECT_EQ(losses[0], losses[1]);
  const auto values = losses[0].at("losses").get<std::vector<double>>();
  ASSERT_EQ(values.size(), 20u);
  EXPECT_NEAR(values[0], std::log(64), 0.1);  // 64 classes, untrained
  EXPECT_LT(values[19], values[0]);
  for (const char* command : {"steps 3", "local 3"}) {
    for (const json& answer : Ask(*side, command)) {
      EXPECT_GT(answer.at("ms"), 0);
      EXPECT_GT(answer.at("cpu_ms"), 0);
      EXPECT_GE(answer.at("faults"), 0);
    }
  }
  for (const json& answer : Ask(*side, "overlap 3")) {
    EXPECT_GT(answer.at("comm_ms"), 0);
    EXPECT_LE(answer.at("exposed_ms"), answer.at("comm_ms"));
  }
  EXPECT_GT(Ask(*side, "memory")[1].at("peak_mib"), 10);
  EXPECT_GT(Ask(*side, "gemm")[0].at("mkl_gflops"), 0);
  EXPECT_GT(Ask(*side, "gemm")[1].at("one_dnn_gflops"), 0);
  const json all_reduce = Ask(*side, "all_reduce")[0];
  EXPECT_GT(all_reduce.at("ms"), 0);
  EXPECT_GT(all_reduce.at("gloo_ms"), 0);
}

TEST_F(BenchRankTest, TheProfileNamesTheOptimizer) {
  const auto side = Start("mlp_small", 1);
  Ask(*side, "losses 1");
  const json profile = Ask(*side, "profile 2").front();
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

TEST_F(BenchRankTest, AnUnknownCommandIsAnError) {
  const auto side = Start("mlp_small", 1);
  const absl::Status status = side->Ask("dance", minutes(2)).status();
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("'dance'"));
}

TEST_F(BenchRankTest, InputsAreTheSameEachTimeAndDifferByRank) {
  const BenchCase bench = CasesNamed({"gpt_tiny"})->front();
  for (const char* name : {"/a", "/b"}) {
    ASSERT_TRUE(WriteBenchInputs(bench, 2, folder_ + name).ok());
  }
  const auto first = ReadBenchInputs(folder_ + "/a", 0);
  const auto again = ReadBenchInputs(folder_ + "/b", 0);
  const auto other = ReadBenchInputs(folder_ + "/a", 1);
  ASSERT_TRUE(first.ok() && again.ok() && other.ok());
  ASSERT_EQ(first->batches.size(), static_cast<size_t>(kBatchesPerRank));
  EXPECT_EQ(first->batches[0].size, bench.batch_size);
  EXPECT_TRUE(first->batches[0].inputs.equal(again->batches[0].inputs));
  EXPECT_FALSE(first->batches[0].inputs.equal(first->batches[1].inputs));
  EXPECT_FALSE(first->batches[0].inputs.equal(other->batches[0].inputs));
  EXPECT_FALSE(first->state.empty());
  EXPECT_EQ(ReadBenchInputs(folder_ + "/a", 2).status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace tandem
