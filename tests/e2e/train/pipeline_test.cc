// A pipeline trains what one device trains, wherever its stages are: to the
// same bits in one microbatch, to rounding in several.

#include <iostream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/train/pipeline_runs.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

// Relative. Sums of float32 in another order, a thousand roundings in each of
// four steps (tests/models/rounding.h).
constexpr double kTolerance = 2e-5;

class PipelineModelTest : public testing::TestWithParam<std::string> {};

void Say(const std::string& what, const std::string& model,
         const PipelinePlace& place) {
  std::cout << "cell: " << what << ", " << model << ", on " << place.name
            << "\n";
}

TEST_P(PipelineModelTest, OneMicrobatchGivesTheSameBits) {
  const Flags job = TinyJob(GetParam());
  const Events& alone = EventsOfJob(job);
  EXPECT_EQ(alone.front()["strategy"], "single");
  int cells = 0;
  for (const PipelinePlace& place : PipelinePlaces()) {
    const Events events =
        RunJobForEvents(Joined(Joined(job, place.flags), {"--microbatches=1"}));
    EXPECT_EQ(events.front()["strategy"], "pipeline");
    EXPECT_EQ(Fingerprint(events), Fingerprint(alone)) << place.name;
    ExpectSameLosses(events, alone, 0, place.name);
    Say("same bits", GetParam(), place);
    ++cells;
  }
  EXPECT_EQ(cells, 8);
}

// Of BatchNorm each microbatch is a batch: it is as if their gradients had been
// accumulated. Float32 sums in another order, and four steps, ask for this
// much; ResNet-18 on noise is unstable.
TEST_P(PipelineModelTest, FourMicrobatchesGiveTheSameLosses) {
  const bool normalises = GetParam() == "resnet18";
  const double tolerance = normalises ? 1e-3 : kTolerance;
  const Flags job = TinyJob(GetParam(), {"--learning_rate=0.01"});
  const Events& alone = EventsOfJob(
      normalises ? Joined(job, {"--gradient_accumulation_steps=4"}) : job);
  for (const PipelinePlace& place : PipelinePlaces()) {
    const Events events =
        RunJobForEvents(Joined(Joined(job, place.flags), {"--microbatches=4"}));
    const double worst =
        normalises
            ? ExpectSameLosses(EventsOf(events, "eval"),
                               EventsOf(alone, "eval"), tolerance, place.name)
            : ExpectSameLosses(events, alone, tolerance, place.name);
    Say("losses differ by " + std::to_string(worst * 1e6) + "e-6 at most",
        GetParam(), place);
  }
}

// The last microbatch has 2 samples: their losses weigh less.
TEST_P(PipelineModelTest, UnevenMicrobatchesGiveTheSameLosses) {
  if (GetParam() == "resnet18") return;  // whose statistics are of others
  const Flags job = TinyJob(GetParam(), {"--learning_rate=0.01"});
  for (const char* place : {"2 devices", "2 ranks"}) {
    const Events events = RunJobForEvents(
        Joined(Joined(job, PlaceNamed(place).flags), {"--microbatch_size=3"}));
    ExpectSameLosses(events, EventsOfJob(job), kTolerance, place);
  }
}

INSTANTIATE_TEST_SUITE_P(All, PipelineModelTest,
                         testing::ValuesIn(PipelineModels()),
                         [](const auto& info) { return info.param; });

TEST(PipelineTest, TellsOfCutsAndBubbles) {
  for (const char* place : {"2 devices", "2 ranks"}) {
    ProgramResult program;
    RunJobForEvents(Joined(TinyJob("mlp_small"), PlaceNamed(place).flags),
                    &program);
    EXPECT_THAT(program.out, HasSubstr("stage"));
    EXPECT_THAT(program.out, HasSubstr("gradient wait"));
    EXPECT_THAT(program.out, HasSubstr("microbatches held at most"));
  }
}

TEST(PipelineTest, ClippedNormsAreThoseOfTheWholeModel) {
  const Flags job =
      TinyJob("gpt_tiny_tied", {"--clip_grad_norm=0.1", "--optimizer=adamw"});
  for (const char* place : {"2 devices", "2 ranks"}) {
    const Events events = RunJobForEvents(
        Joined(Joined(job, PlaceNamed(place).flags), {"--microbatches=1"}));
    ExpectSameLosses(events, EventsOfJob(job), kTolerance, place);
  }
}

TEST(PipelineTest, EvaluatesACheckpointAndChangesNothing) {
  const std::string folder = NewFolder("eval");
  const Events trained =
      RunJobForEvents(TinyJob("unet_tiny", {"--save_dir=" + folder}));
  for (const char* place : {"2 asynchronous devices", "2 ranks"}) {
    const Events events = RunJobForEvents(
        TinyJob("unet_tiny", Joined(PlaceNamed(place).flags,
                                    {"--eval_only", "--resume=" + folder})));
    EXPECT_TRUE(EventsOf(events, "step").empty());
    EXPECT_EQ(EventsOf(events, "eval")[0]["accuracy"],
              trained.back()["test_accuracy"]);
    EXPECT_EQ(Fingerprint(events), Fingerprint(trained));
  }
}

}  // namespace
}  // namespace tandem
