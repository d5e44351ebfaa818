// What a pipeline is asked for changes how it works, not what it trains:
// schedules, cuts, recomputation, weights' gradients.

#include <fstream>
#include <iostream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/train/pipeline_runs.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

const char* const kPlaces[] = {"2 devices", "2 ranks"};

// Relative. Sums of float32 in another order, a thousand roundings in each of
// four steps (tests/models/rounding.h).
constexpr double kTolerance = 2e-5;

// ResNet-18 with BatchNorm over two samples is chaotic: what rounding does
// after the second step says nothing.
Flags JobOf(const std::string& model) {
  return TinyJob(model, model == "resnet18"
                            ? Flags{"--learning_rate=0.0001", "--max_steps=2"}
                            : Flags{"--learning_rate=0.01"});
}

Flags OnPlace(const std::string& model, const std::string& place,
              const Flags& more) {
  return Joined(JobOf(model), Joined(PlaceNamed(place).flags, more));
}

void Say(const std::string& what, const std::string& model,
         const std::string& place) {
  std::cout << "cell: " << what << ", " << model << ", on " << place << "\n";
}

// Model, place.
using Cell = std::tuple<std::string, const char*>;

class PipelineRecipeTest : public testing::TestWithParam<Cell> {
 protected:
  std::string model() const { return std::get<0>(GetParam()); }
  std::string place() const { return std::get<1>(GetParam()); }
  bool normalises() const { return model() == "resnet18"; }

  Events Run(const Flags& more) const {
    return RunJobForEvents(OnPlace(model(), place(), more));
  }
  // What others are held against: one device; with BatchNorm, of which each
  // microbatch is a batch, a pipeline.
  const Events& Expected() const {
    return EventsOfJob(normalises()
                           ? OnPlace(model(), place(), {"--microbatches=4"})
                           : JobOf(model()));
  }
  void ExpectSame(const Events& events, const std::string& name) const {
    if (normalises()) {
      ExpectSameLosses(EventsOf(events, "step"), EventsOf(Expected(), "step"),
                       1e-3, name);
    } else {
      ExpectSameLosses(events, Expected(), kTolerance, name);
    }
  }
};

TEST_P(PipelineRecipeTest, EveryScheduleGivesTheSameLosses) {
  for (const std::string schedule :
       {"gpipe", "1f1b", "interleaved_1f1b", "looped_bfs", "zb_h1", "zb_v"}) {
    const Events events = Run({"--microbatches=4", "--schedule=" + schedule});
    ExpectSame(events, schedule);
    Say(schedule, model(), place());
  }
}

TEST_P(PipelineRecipeTest, ASplitBackwardGivesTheSameBits) {
  for (const std::string schedule : {"zb_h1", "zb_v"}) {
    const Events events = Run({"--microbatches=1", "--schedule=" + schedule});
    EXPECT_EQ(Fingerprint(events), Fingerprint(EventsOfJob(JobOf(model()))))
        << schedule;
    Say(schedule + " with one microbatch", model(), place());
  }
}

TEST_P(PipelineRecipeTest, RecomputingGivesTheSameBits) {
  for (const std::string schedule : {"1f1b", "zb_h1"}) {
    const Flags flags = {"--microbatches=4", "--schedule=" + schedule};
    const std::string never = Fingerprint(Run(flags));
    for (const std::string mode : {"except_last", "always"}) {
      const Events events =
          Run(Joined(flags, {"--checkpoint_activations=" + mode}));
      EXPECT_EQ(Fingerprint(events), never) << schedule << ", " << mode;
      Say(schedule + ", recomputing " + mode, model(), place());
    }
  }
}

TEST_P(PipelineRecipeTest, WeightGradientsTogetherGiveTheSameLosses) {
  // Fewer than there are microbatches, not a divisor of them, and all.
  const std::pair<const char*, const char*> kinds[] = {
      {"zb_h1", "2"}, {"zb_h1", "3"}, {"1f1b", "4"}};
  for (const auto& [schedule, batch] : kinds) {
    const std::string kind =
        std::string(schedule) + ", weights' gradients of " + batch;
    const Events events =
        Run({"--microbatches=4", "--schedule=" + std::string(schedule),
             "--weight_gradient_batch=" + std::string(batch)});
    ExpectSame(events, kind);
    Say(kind, model(), place());
  }
}

// The first two layers on the first device.
std::string CutsOf(const std::string& model) {
  if (model == "gpt_tiny_tied") return "transformer.h.2";
  if (model == "unet_tiny") return "middle";
  if (model == "mlp_dropout") return "block1";
  return model == "resnet18" ? "layer3.0" : "fc2";
}

TEST_P(PipelineRecipeTest, EveryCutGivesTheSameBits) {
  const std::string alone = Fingerprint(EventsOfJob(JobOf(model())));
  for (const std::string balance :
       {"uniform", "parameters", "profile", "type:.*", ""}) {
    const std::string cut = balance.empty() ? CutsOf(model()) : balance;
    ProgramResult program;
    const Events events = RunJobForEvents(
        OnPlace(model(), place(), {"--microbatches=1", "--balance=" + cut}),
        &program);
    EXPECT_EQ(Fingerprint(events), alone) << cut;
    EXPECT_THAT(program.out, HasSubstr("stage"));
    Say("--balance=" + cut, model(), place());
  }
}

INSTANTIATE_TEST_SUITE_P(All, PipelineRecipeTest,
                         testing::Combine(testing::ValuesIn(PipelineModels()),
                                          testing::ValuesIn(kPlaces)));

TEST(PipelineScheduleFileTest, OnesOwnScheduleTrains) {
  const std::string path = NewFolder("schedule") + "/mine.txt";
  std::ofstream(path) << "# GPipe, weights last\n"
                         "F0 F1 F2 I0 W0 I1 W1 I2 W2\n"
                         "F0 F1 F2 I2 I1 I0 W0 W1 W2\n";
  for (const char* place : kPlaces) {
    const Events events = RunJobForEvents(
        OnPlace("gpt_tiny_tied", place, {"--schedule=" + path}));
    ExpectSameLosses(events, EventsOfJob(JobOf("gpt_tiny_tied")), kTolerance,
                     place);
  }
}

}  // namespace
}  // namespace tandem
