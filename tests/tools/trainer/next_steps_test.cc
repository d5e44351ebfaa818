#include "tools/trainer/next_steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  EXPECT_EQ(NextSteps(options, OfImages())[0].second,
            "the same flags, with --epochs=6 --resume=ck");
  options.max_steps = 180;
  EndedJob job = OfImages();
  job.checkpoint = "my folder";
  EXPECT_EQ(NextSteps(options, job)[0].second,
            "the same flags, with --epochs=6 --max_steps=360 "
            "--resume='my folder'");
}

}  // namespace
}  // namespace tandem::next_steps_test
