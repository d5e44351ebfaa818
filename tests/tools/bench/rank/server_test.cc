// Tandem's side of the pipeline's benchmark, as a process.

#include "tools/bench/pipeline_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/base/environment.h"
#include "tools/bench/side.h"

namespace tandem {
namespace {

using nlohmann::json;

class PipelineServerTest : public testing::Test {
 protected:
  void SetUp() override {
    PipelineServerOptions inputs;
    inputs.model = "mlp_deep";
    inputs.inputs = testing::TempDir() + "/inputs";
    ASSERT_TRUE(WriteInputsOf(inputs).ok());
    SideOptions options;
    options.name = "tandem";
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    options.name += test->name();
    options.folder = testing::TempDir();
    options.environment = Environment::OfProcess();
    options.command = {"tools/bench/pipeline_rank", "--model=mlp_deep",
                       "--inputs=" + inputs.inputs};
    auto side = Side::Start(options);
    ASSERT_TRUE(side.ok()) << side.status();
    side_ = *std::move(side);
  }

  json Ask(const std::string& command) {
    const auto answers = side_->Ask(command, std::chrono::minutes(2));
    EXPECT_TRUE(answers.ok()) << answers.status();
    return answers.ok() ? answers->front() : json();
  }

  std::unique_ptr<Side> side_;
};

TEST_F(PipelineServerTest, EverySettingTrainsTheSame) {
  Ask("use 1f1b 1 1 uniform");
  const json expected = Ask("losses 2").at("losses");
  for (const char* setting :
       {"gpipe 1 4 uniform", "1f1b 1 16 time", "interleaved_1f1b 2 4 uniform",
        "looped_bfs 2 2 uniform", "zb_h1 1 8 time", "zb_v 2 4 time"}) {
    const json cuts = Ask(std::string("use ") + setting).at("cuts");
    EXPECT_EQ(
        cuts.size(),
        setting[0] == 'i' || setting[0] == 'l' || setting[3] == 'v' ? 3u : 1u)
        << setting;
    const json losses = Ask("losses 2").at("losses");
    for (int i : {0, 1}) {
      EXPECT_NEAR(losses[i].get<double>(), expected[i].get<double>(), 1e-5)
          << setting;
    }
  }
}

TEST_F(PipelineServerTest, MeasuresItself) {
  Ask("use zb_h1 1 4 uniform");
  EXPECT_GT(Ask("steps 2").at("ms"), 0);
  EXPECT_GT(Ask("alone 1").at("ms"), 0);
  EXPECT_GT(Ask("memory").at("peak_mib"), 10);
  const json stages = Ask("stages 1");
  for (const char* part : {"forward", "backward_input", "backward_weight"}) {
    ASSERT_EQ(stages.at(part).size(), 2u);
    EXPECT_GT(stages.at(part)[0], 0);
    EXPECT_GT(stages.at(part)[1], 0);
  }
  EXPECT_GT(stages.at("optimizer"), 0);
}

TEST_F(PipelineServerTest, RefusesWhatItDoesNotKnow) {
  const absl::Status early =
      side_->Ask("steps 1", std::chrono::minutes(2)).status();
  EXPECT_THAT(std::string(early.message()), testing::HasSubstr("no setting"));
}

TEST_F(PipelineServerTest, RefusesASettingThatIsNone) {
  const absl::Status wrong =
      side_->Ask("use 1f1b 1 4 luck", std::chrono::minutes(2)).status();
  EXPECT_THAT(std::string(wrong.message()), testing::HasSubstr("luck"));
}

}  // namespace
}  // namespace tandem
