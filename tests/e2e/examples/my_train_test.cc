// docs/examples/consumer/my_train: the trainer with a model and a data set that
// are not its own, as a user runs it.

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/program.h"

namespace tandem {
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
}  // namespace tandem
