// docs/examples/consumer/my_train: the trainer with a model and a data set that
// are not its own, as a user runs it.

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/program.h"

namespace tandem::my_train_test {
namespace {

using ::testing::HasSubstr;

ProgramResult RunMyTrain(std::vector<std::string> flags) {
  flags.insert(flags.begin(), {"--save_dir=", "--batch_size=64"});
  return RunProgram("docs/examples/my_train", flags);
}

ProgramResult TrainMyNet(std::vector<std::string> flags) {
  flags.insert(flags.begin(), {"--model=my_net", "--dataset=quadrants"});
  return RunMyTrain(flags);
}

// The rest of the line that begins so.
std::string Line(const std::string& text, const std::string& begin) {
  const size_t at = text.find(begin);
  if (at == std::string::npos) return "";
  const size_t first = at + begin.size();
  return text.substr(first, text.find('\n', first) - first);
}

TEST(MyTrainTest, LearnsAsAnyOfTheTrainers) {
  const ProgramResult result = TrainMyNet({"--epochs=3"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_GT(std::stod(Line(result.out, "test accuracy")), 95) << result.out;
}

TEST(MyTrainTest, DdpAPipelineAndTheHybridAreOneDevice) {
  const std::vector<std::string> same = {"--reproducible",
                                         "--microbatch_size=16"};
  const auto weights_of = [&](std::vector<std::string> flags) {
    flags.insert(flags.end(), same.begin(), same.end());
    const ProgramResult result = TrainMyNet(flags);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return Line(result.out, "weights_sha256");
  };
  const std::string one = weights_of({});
  EXPECT_NE(one, "");
  EXPECT_EQ(weights_of({"--nproc_per_node=2"}), one);
  EXPECT_EQ(weights_of({"--nproc_per_node=2", "--pipe=2"}), one);
  EXPECT_EQ(weights_of({"--nproc_per_node=4", "--pipe=2"}), one);
}

struct Sums {
  std::vector<double> steps, evaluations;
};

// What the lines of a job call "active", as its metrics file has it.
Sums ActiveOf(const std::vector<std::string>& layout) {
  static int runs = 0;
  const std::string metrics =
      absl::StrCat(testing::TempDir(), "/active", ++runs, ".jsonl");
  std::vector<std::string> flags = {"--reproducible", "--microbatch_size=16",
                                    "--max_steps=6", "--log_every=3",
                                    "--metrics_file=" + metrics};
  flags.insert(flags.end(), layout.begin(), layout.end());
  const ProgramResult result = TrainMyNet(flags);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(Line(result.out, "test: loss"), HasSubstr("  active "));
  Sums sums;
  std::ifstream file(metrics);
  for (std::string line; std::getline(file, line);) {
    const auto event = nlohmann::json::parse(line);
    if (event["event"] == "step") sums.steps.push_back(event["sums"]["active"]);
    if (event["event"] != "eval") continue;
    sums.evaluations.push_back(event["sums"]["active"]);
    EXPECT_THAT(result.out, HasSubstr(absl::StrCat(
                                "  active ", sums.evaluations.back(), "  ")));
  }
  return sums;
}

TEST(MyTrainTest, NamedSumsAreThoseOfOneDeviceInEveryLayout) {
  const Sums one = ActiveOf({});
  ASSERT_EQ(one.steps.size(), 2u);
  ASSERT_EQ(one.evaluations.size(), 1u);
  // Of 3 steps of 64 samples each, and of the test set's 512: 32 numbers.
  EXPECT_GT(one.steps[0], 0);
  EXPECT_LT(one.steps[0], 32 * 3 * 64);
  EXPECT_GT(one.evaluations[0], 0);
  EXPECT_LT(one.evaluations[0], 32 * 512);
  for (const std::vector<std::string>& layout :
       std::vector<std::vector<std::string>>{
           {"--nproc_per_node=2"},
           {"--nproc_per_node=2", "--pipe=2"},
           {"--nproc_per_node=4", "--pipe=2"}}) {
    const Sums sums = ActiveOf(layout);
    EXPECT_EQ(sums.steps, one.steps);
    EXPECT_EQ(sums.evaluations, one.evaluations);
  }
}

TEST(MyTrainTest, TrainsTheTrainersOnesToo) {
  const ProgramResult result =
      RunMyTrain({"--model=mlp_small", "--dataset=quadrants", "--max_steps=2"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
}

TEST(MyTrainTest, HelpAndErrorsKnowTheNames) {
  const std::string help = RunMyTrain({"--help"}).out;
  EXPECT_THAT(help, HasSubstr("--model takes this program's own, too: my_net"));
  EXPECT_THAT(help,
              HasSubstr("--dataset takes this program's own, too: quadrants"));
  const ProgramResult model = RunMyTrain({"--model=your_net"});
  EXPECT_EQ(model.exit_code, 2);
  EXPECT_THAT(model.err, HasSubstr("mlp_wide, my_net, resnet18"));
  const ProgramResult data = RunMyTrain({"--dataset=octants"});
  EXPECT_EQ(data.exit_code, 2);
  EXPECT_THAT(data.err, HasSubstr("mnist, quadrants, synthetic"));
}

TEST(MyTrainTest, WhatTheFlagsSayIsCheckedForThem) {
  const ProgramResult sizes = TrainMyNet({"--layers=3"});
  EXPECT_EQ(sizes.exit_code, 2);
  EXPECT_THAT(sizes.err, HasSubstr("model my_net is of one size"));
}

}  // namespace
}  // namespace tandem::my_train_test
