#include "tools/trainer/next_steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

namespace tandem::next_steps_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

EndedJob OfImages() { return {1, false, {1, 28, 28}, "ck"}; }

std::vector<std::string> NamesOf(const TrainOptions& options,
                                 const EndedJob& job) {
  std::vector<std::string> names;
  for (const auto& each : NextSteps(options, job)) names.push_back(each.first);
  return names;
}

TEST(NextStepsTest, AreThoseThatTheJobCanTake) {
  TrainOptions options;
  options.batch_size = 32;
  EXPECT_THAT(NamesOf(options, OfImages()),
              ElementsAre("go on training", "on two ranks", "another network"));
  EndedJob job = OfImages();
  job.ranks = 2;
  job.checkpoint = "";
  EXPECT_THAT(NamesOf(options, job), ElementsAre("another network"));
  options.model = "resnet18";
  EXPECT_THAT(NamesOf(options, job), IsEmpty());
  options.model = "cnn";
  options.init_from = "weights.safetensors";
  EXPECT_THAT(NamesOf(options, job), IsEmpty());
  options.init_from = "";
  job.input_shape = {6};
  EXPECT_THAT(NamesOf(options, job), IsEmpty());
  options.batch_size = 33;
  job.ranks = 1;
  EXPECT_THAT(NamesOf(options, job), IsEmpty());
  options.eval_only = true;
  EXPECT_THAT(NamesOf(options, OfImages()), IsEmpty());
}

// Whether the epochs or the steps have ended it.
TEST(NextStepsTest, GoingOnLeavesSomethingToTrain) {
  TrainOptions options;
  options.epochs = 4;
  EXPECT_EQ(NextSteps(options, OfImages())[0].second, "--epochs=6 --resume=ck");
  options.max_steps = 180;
  EndedJob job = OfImages();
  job.checkpoint = "my folder";
  EXPECT_EQ(NextSteps(options, job)[0].second,
            "--epochs=6 --max_steps=360 --resume='my folder'");
}

TEST(NextStepsTest, GoingOnWithWhatFallsToTheEndSaysThatTheRateRises) {
  TrainOptions options;
  for (const std::string falls : {"cosine", "linear", "wsd"}) {
    options.lr_schedule = falls;
    EXPECT_EQ(
        NextSteps(options, OfImages())[0].first,
        "go on training (the learning rate rises to a longer " + falls + "'s)");
  }
  options.lr_schedule = "step";
  EXPECT_EQ(NextSteps(options, OfImages())[0].first, "go on training");
}

std::vector<std::string> FlagsOf(const TrainOptions& options) {
  EndedJob job = OfImages();
  job.checkpoint = "";
  std::vector<std::string> flags;
  for (const auto& each : NextSteps(options, job)) flags.push_back(each.second);
  return flags;
}

TEST(NextStepsTest, AnotherJobSavesInAFolderOfItsOwn) {
  TrainOptions options;
  EXPECT_THAT(FlagsOf(options),
              ElementsAre("--nproc_per_node=2 --save_dir=two_ranks",
                          "--model=resnet18 --save_dir=resnet18"));
  // Not this job's, nor one that is there.
  const std::string runs = std::filesystem::path(testing::TempDir() + "/runs")
                               .lexically_normal()
                               .string();
  std::filesystem::create_directories(runs + "/resnet18");
  options.save_dir = runs + "/two_ranks/";
  EXPECT_THAT(
      FlagsOf(options),
      ElementsAre("--nproc_per_node=2 --save_dir=" + runs + "/two_ranks_2",
                  "--model=resnet18 --save_dir=" + runs + "/resnet18_2"));
  options.save_dir = "";
  EXPECT_THAT(FlagsOf(options),
              ElementsAre("--nproc_per_node=2", "--model=resnet18"));
}

TEST(NextStepsTest, AnotherJobBeginsAnew) {
  TrainOptions options;
  options.save_dir = "";
  options.resume = "checkpoints";
  EXPECT_THAT(FlagsOf(options), ElementsAre("--nproc_per_node=2 --resume=",
                                            "--model=resnet18 --resume="));
  options.resume = "auto";
  EXPECT_THAT(FlagsOf(options),
              ElementsAre("--nproc_per_node=2", "--model=resnet18"));
}

TEST(NextStepsTest, TwoRanksAreAdvisedWhereTheFlagsTakeThem) {
  TrainOptions options;
  options.save_dir = "";
  options.strategy = "single";
  EXPECT_THAT(FlagsOf(options), ElementsAre("--model=resnet18"));
}

}  // namespace
}  // namespace tandem::next_steps_test
