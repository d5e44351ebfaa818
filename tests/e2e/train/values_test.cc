// Values that are not finite, and replicas that have drifted: named, skipped,
// or gone back from.

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/train/runs.h"

namespace tandem {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct Layout {
  std::string name;
  Flags flags;
  bool has_replicas = false;
};

const auto kLayouts = testing::Values(
    Layout{"Single", {}}, Layout{"Ddp", {"--nproc_per_node=2"}, true},
    Layout{
        "Devices",
        {"--devices_per_rank=2", "--strategy=pipeline", "--microbatch_size=4"}},
    Layout{"Pipeline",
           {"--nproc_per_node=2", "--pipe=2", "--microbatch_size=4"}},
    Layout{"Hybrid",
           {"--nproc_per_node=4", "--pipe=2", "--microbatch_size=4"},
           true});

class NonfiniteTest : public testing::TestWithParam<Layout> {};

// The first step's update is finite and huge: what it makes of the second one's
// inputs is not.
TEST_P(NonfiniteTest, TheFirstLayerIsNamed) {
  const ProgramResult result = RunProgram(
      kTrain, Joined(SmallJob({"--learning_rate=1e30", "--check_finite"}),
                     GetParam().flags));
  EXPECT_EQ(result.exit_code, 1) << result.out << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("layer "), HasSubstr("its input is "),
                                HasSubstr("its parameters are finite")));
}

TEST_P(NonfiniteTest, StepsAreSkippedOnAllRanksAlike) {
  const Flags job =
      Joined(SmallJob({"--learning_rate=1e30"}), GetParam().flags);
  const Events one = RunJobForEvents(Joined(job, {"--max_steps=1"}));
  const Events all = RunJobForEvents(Joined(job, {"--skip_nonfinite"}));
  EXPECT_EQ(EventsOf(all, "skipped_step").size(), 5u);
  EXPECT_EQ(Fingerprint(all), Fingerprint(one));
}

TEST(SkippedStepsTest, AJobThatHasSkippedAllHasFailed) {
  const ProgramResult result =
      RunProgram(kTrain, SmallJob({"--z_loss=1e60", "--skip_nonfinite"}));
  EXPECT_EQ(result.exit_code, 1) << result.out;
  EXPECT_THAT(result.err, HasSubstr("all 6 steps were skipped"));
  EXPECT_THAT(result.out, HasSubstr("skipped            6 steps"));
}

TEST_P(NonfiniteTest, FiniteStepsHaveTheSameBits) {
  const Flags job = Joined(SmallJob(), GetParam().flags);
  const std::string plain = Fingerprint(RunJobForEvents(job));
  EXPECT_EQ(Fingerprint(RunJobForEvents(Joined(job, {"--skip_nonfinite"}))),
            plain);
  EXPECT_EQ(Fingerprint(RunJobForEvents(Joined(job, {"--check_finite"}))),
            plain);
  if (!GetParam().has_replicas) return;
  EXPECT_EQ(
      Fingerprint(RunJobForEvents(Joined(job, {"--check_replicas_every=1"}))),
      plain);
}

INSTANTIATE_TEST_SUITE_P(All, NonfiniteTest, kLayouts,
                         [](const auto& info) { return info.param.name; });

ProgramOptions CorruptedIn(int step, int rank) {
  ProgramOptions options;
  options.environment["TANDEM_FAULT"] =
      "point=parameters,action=fail,step=" + std::to_string(step) +
      ",rank=" + std::to_string(rank);
  return options;
}

TEST(DriftTest, TheReplicaThatDriftedIsNamed) {
  const ProgramResult result =
      RunProgram(kTrain,
                 SmallJob({"--nproc_per_node=3", "--batch_size=15",
                           "--check_replicas_every=2"}),
                 CorruptedIn(3, 1));
  EXPECT_EQ(result.exit_code, 1) << result.out;
  EXPECT_THAT(result.err, HasSubstr("replicas differ after step 4: rank 1 has "
                                    "drifted from ranks 0, 2, which are "
                                    "alike ("));
}

// What is each replica's own is no drift.
TEST(DriftTest, ParametersThatAreEachReplicasOwnAreNotCompared) {
  const ProgramResult result = RunProgram(
      kTrain, SmallJob({"--nproc_per_node=2", "--check_replicas_every=1",
                        "--parameters_to_ignore=fc1.weight,fc2.bias"}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
}

// Owners would make replicas alike before anybody looks.
TEST(DriftTest, TheOptimizerIsNotSharedWhereReplicasAreCompared) {
  const Events events = RunJobForEvents(
      SmallJob({"--nproc_per_node=2", "--model=mlp_wide", "--optimizer=adamw",
                "--max_steps=1", "--check_replicas_every=1"}));
  const std::string state =
      EventsOf(events, "settings").front()["optimizer_state"];
  EXPECT_THAT(state, HasSubstr("whole on each replica (comparing replicas"));
}

// The checkpoint of step 2 is before it; the one of step 4 is not written.
TEST(DriftTest, ARestartGoesBackToBeforeIt) {
  const Flags job = SmallJob({"--nproc_per_node=2"});
  ProgramResult program;
  const Events events = RunJobForEvents(
      Joined(job, {"--check_replicas_every=100", "--save_every=2",
                   "--max_restarts=1", "--restart_delay=0",
                   "--save_dir=" + NewFolder("drift")}),
      &program, CorruptedIn(3, 0));
  EXPECT_THAT(program.err, HasSubstr("replicas differ after step 4: ranks 0, "
                                     "1 have different parameters"));
  EXPECT_THAT(program.out, HasSubstr("at step 2"));
  EXPECT_EQ(Fingerprint(events), Fingerprint(RunJobForEvents(job)));
}

TEST(ValuesTest, WhatDoesNotGoTogetherIsRefused) {
  struct Refusal {
    Flags flags;
    std::string message;
  };
  for (const Refusal& refusal : std::vector<Refusal>{
           {{"--check_replicas_every=2", "--nproc_per_node=2",
             "--average_parameters_every=4"},
            "has train apart for a while"},
           {{"--check_replicas_every=2", "--nproc_per_node=2",
             "--average_parameters_every=1"},
            "makes alike in each step"},
           {{"--check_replicas_every=2", "--nproc_per_node=2",
             "--shard_optimizer=on"},
            "--shard_optimizer=on makes alike in each step"},
           {{"--check_replicas_every=2", "--nproc_per_node=3",
             "--strategy=parameter_server", "--servers=1"},
            "parameters of different ages"},
           {{"--check_replicas_every=2"},
            "--check_replicas_every=2 is about several replicas, but this job "
            "has one"},
           {{"--check_replicas_every=2", "--strategy=data_parallel",
             "--devices_per_rank=2"},
            "--check_replicas_every=2 is about several replicas"},
           {{"--skip_nonfinite", "--nproc_per_node=3",
             "--strategy=parameter_server", "--servers=1"},
            "--skip_nonfinite skips a step"},
           {{"--skip_nonfinite", "--init_scale=4"},
            "about the scale of the loss"}}) {
    const ProgramResult result = RunProgram(kTrain, SmallJob(refusal.flags));
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.err, HasSubstr(refusal.message));
  }
}

}  // namespace
}  // namespace tandem
