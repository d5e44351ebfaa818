// Training in fp16: steps that overflow are skipped, and said to be.

#include <cmath>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/train/runs.h"

namespace tandem::grad_scaler_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// From a scale of 2^24, of which no gradient is a number of fp16.
Flags Fp16Job(const Flags& more) {
  return Joined(Small("--epochs=3 --dtype=fp16 --init_scale=16777216"), more);
}

class Fp16LayoutTest : public testing::TestWithParam<const char*> {};

TEST_P(Fp16LayoutTest, SkipsStepsUntilTheScaleFits) {
  ProgramResult program;
  const Events events = RunJobForEvents(Fp16Job(Words(GetParam())), &program);
  const Events skipped = EventsOf(events, "skipped_step");
  ASSERT_GE(skipped.size(), 1);
  ASSERT_LT(skipped.size(), 12);
  for (size_t i = 0; i < skipped.size(); ++i) {
    EXPECT_EQ(skipped[i]["step"], i + 1);
    EXPECT_EQ(skipped[i]["loss_scale"],
              std::ldexp(1, 23 - static_cast<int>(i)));
    EXPECT_EQ(skipped[i]["skipped_steps"], i + 1);
  }
  EXPECT_THAT(program.out, HasSubstr("step 1 was skipped: its gradients are "
                                     "not finite; the loss is scaled by"));
  const Events steps = EventsOf(events, "step");
  EXPECT_EQ(steps.size(), 18);
  EXPECT_EQ(steps.back()["loss_scale"], skipped.back()["loss_scale"]);
  EXPECT_EQ(events.back()["skipped_steps"], skipped.size());
}

INSTANTIATE_TEST_SUITE_P(All, Fp16LayoutTest,
                         testing::Values("", "--nproc_per_node=2",
                                         "--nproc_per_node=2 --pipe=2",
                                         "--nproc_per_node=4 --pipe=2"));

// A loss in fp16 would be infinite above a scale of 65504, whatever gradients
// are.
TEST(Fp16Test, TheScaleGrowsBeyondTheGreatestNumberOfFp16) {
  for (const char* layout :
       {"", "--nproc_per_node=2", "--nproc_per_node=2 --pipe=2"}) {
    const Events events =
        RunJobForEvents(Joined(Small("--epochs=3 --dtype=fp16 --log_every=1 "
                                     "--init_scale=32768 --growth_interval=4"),
                               Words(layout)));
    EXPECT_TRUE(EventsOf(events, "skipped_step").empty());
    EXPECT_EQ(EventsOf(events, "step").back()["loss_scale"],
              32768 * std::ldexp(1, 4));
  }
}

TEST(Fp16Test, TheScaleGoesOnFromACheckpointInAnyLayout) {
  const std::string folder = NewFolder("fp16");
  const Flags growing = {"--growth_interval=3"};
  const Events straight = RunJobForEvents(
      Fp16Job(Joined(growing, {"--save_dir=" + folder, "--save_every=1"})));
  for (const int stop : {2, 11}) {
    const Flags job =
        Fp16Job(Joined(growing, {"--resume=" + SavedStep(folder, stop)}));
    const Events resumed = RunJobForEvents(job);
    EXPECT_EQ(Fingerprint(resumed), Fingerprint(straight));
    const Events all = EventsOf(straight, "step");
    const Events later = EventsOf(resumed, "step");
    ASSERT_EQ(later.size(), all.size() - static_cast<size_t>(stop));
    for (size_t i = 0; i < later.size(); ++i) {
      const auto& same = all[i + static_cast<size_t>(stop)];
      EXPECT_EQ(later[i]["loss_scale"], same["loss_scale"]);
    }
    const Events elsewhere =
        RunJobForEvents(Joined(job, Words("--nproc_per_node=4 --pipe=2")));
    EXPECT_EQ(EventsOf(elsewhere, "step").front()["loss_scale"],
              later.front()["loss_scale"]);
  }
}

TEST(Fp16Test, EndsWhereNoScaleHelps) {
  for (const char* layout : {"", "--nproc_per_node=2"}) {
    const ProgramResult result = RunProgram(
        kTrain, Joined(Small("--dtype=fp16 --epochs=7 --optimizer=sgd "
                             "--learning_rate=1e30"),
                       Words(layout)));
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.err,
                HasSubstr("steps were not finite, and the loss scale has come "
                          "down to 6.10352e-05"));
    EXPECT_THAT(result.err, HasSubstr("try a smaller learning rate"));
  }
}

TEST(Fp16Test, NothingIsScaledWithoutIt) {
  ProgramResult program;
  const Events events = RunJobForEvents(Small("--dtype=bf16"), &program);
  EXPECT_EQ(EventsOf(events, "step").front().count("loss_scale"), 0);
  EXPECT_THAT(program.out, Not(HasSubstr("skipped")));
}

}  // namespace
}  // namespace tandem::grad_scaler_test
