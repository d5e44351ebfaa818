// Values that are not finite, replicas that have drifted, and gradients beyond
// the numbers of fp16: named, skipped, or gone back from.

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/train/job_table.h"
#include "tests/e2e/train/runs.h"

namespace tandem::values_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::vector<std::pair<std::string, std::string>>& Layouts() {
  static const auto* const layouts =
      new std::vector<std::pair<std::string, std::string>>{
          {"Single", ""},
          {"Ddp", "--nproc_per_node=2"},
          {"Devices",
           "--devices_per_rank=2 --strategy=pipeline --microbatch_size=4"},
          {"Pipeline", "--nproc_per_node=2 --pipe=2 --microbatch_size=4"},
          {"Hybrid", "--nproc_per_node=4 --pipe=2 --microbatch_size=4"}};
  return *layouts;
}

bool HasReplicas(const std::string& layout) {
  return layout == "Ddp" || layout == "Hybrid";
}

// The first step's update is finite and huge: what it makes of the second one's
// inputs is not.
std::vector<RefusalRow> NonfiniteRows() {
  std::vector<RefusalRow> rows;
  for (const auto& [name, flags] : Layouts()) {
    rows.push_back({name, "--learning_rate=1e30 --check_finite " + flags,
                    "layer |its input is |its parameters are finite", 1});
  }
  return rows;
}

class NonfiniteTest : public testing::TestWithParam<RefusalRow> {};

TEST_P(NonfiniteTest, TheFirstLayerIsNamed) {
  ExpectRefused(SmallJob(), GetParam());
}

INSTANTIATE_TEST_SUITE_P(All, NonfiniteTest, testing::ValuesIn(NonfiniteRows()),
                         RowName<RefusalRow>);

void SkipsFiveSteps(const JobRun& run, const JobRun& one_step) {
  EXPECT_EQ(EventsOf(run.events, "skipped_step").size(), 5u);
  SameBits(run, one_step);
}

std::vector<SameRow> Rows() {
  std::vector<SameRow> rows;
  for (const auto& [name, flags] : Layouts()) {
    rows.push_back({"StepsAreSkippedOnAllRanksAlike" + name,
                    Small("--learning_rate=1e30 " + flags),
                    {"--skip_nonfinite"},
                    SkipsFiveSteps,
                    {""},
                    "--max_steps=1"});
    rows.push_back({"FiniteStepsHaveTheSameBits" + name,
                    Small(flags),
                    {"--skip_nonfinite", "--check_finite"}});
    if (HasReplicas(name)) {
      rows.back().others.push_back("--check_replicas_every=1");
    }
  }
  return rows;
}

class ValuesTest : public testing::TestWithParam<SameRow> {};

TEST_P(ValuesTest, ChangeNoOtherStep) { ExpectSame(GetParam()); }

INSTANTIATE_TEST_SUITE_P(All, ValuesTest, testing::ValuesIn(Rows()),
                         RowName<SameRow>);

TEST(ValuesTableTest, NoCellIsMissing) {
  EXPECT_EQ(NonfiniteRows().size(), 5u);
  EXPECT_EQ(CellsIn(Rows()), 5 * 3 + 2);
}

ProgramOptions CorruptedIn(int step, int rank) {
  return FaultOf("point=parameters,action=fail,step=" + std::to_string(step) +
                 ",rank=" + std::to_string(rank));
}

TEST(DriftTest, TheReplicaThatDriftedIsNamed) {
  const ProgramResult result =
      RunProgram(kTrain,
                 Small("--nproc_per_node=3 --batch_size=15 "
                       "--check_replicas_every=2"),
                 CorruptedIn(3, 1));
  EXPECT_EQ(result.exit_code, 1) << result.out;
  EXPECT_THAT(result.err, HasSubstr("replicas differ after step 4: rank 1 has "
                                    "drifted from ranks 0, 2, which are "
                                    "alike ("));
}

// What is each replica's own is no drift.
TEST(DriftTest, ParametersThatAreEachReplicasOwnAreNotCompared) {
  const ProgramResult result =
      RunProgram(kTrain, Small("--nproc_per_node=2 --check_replicas_every=1 "
                               "--parameters_to_ignore=fc1.weight,fc2.bias"));
  EXPECT_EQ(result.exit_code, 0) << result.err;
}

// Owners would make replicas alike before anybody looks.
TEST(DriftTest, TheOptimizerIsNotSharedWhereReplicasAreCompared) {
  const Events events = RunJobForEvents(
      Small("--nproc_per_node=2 --model=mlp_wide --optimizer=adamw "
            "--max_steps=1 --check_replicas_every=1"));
  const std::string state =
      EventsOf(events, "settings").front()["optimizer_state"];
  EXPECT_THAT(state, HasSubstr("whole on each replica (comparing replicas"));
}

// The checkpoint of step 2 is before it; the one of step 4 is not written.
TEST(DriftTest, ARestartGoesBackToBeforeIt) {
  const Flags job = Small("--nproc_per_node=2");
  ProgramResult program;
  const Events events =
      RunJobForEvents(Joined(job,
                             Words("--check_replicas_every=100 --save_every=2 "
                                   "--max_restarts=1 --restart_delay=0"),
                             {"--save_dir=" + NewFolder("drift")}),
                      &program, CorruptedIn(3, 0));
  EXPECT_THAT(program.err, HasSubstr("replicas differ after step 4: ranks 0, "
                                     "1 have different parameters"));
  EXPECT_THAT(program.out, HasSubstr("at step 2"));
  EXPECT_EQ(Fingerprint(events), Fingerprint(RunJobForEvents(job)));
}

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
}  // namespace tandem::values_test
