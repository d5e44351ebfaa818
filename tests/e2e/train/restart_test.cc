// Jobs that lose a rank, and are started again by their launcher: they end with
// the bits of one that lost none.

#include <iostream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/testing/process_testing.h"
#include "tests/e2e/train/runs.h"

namespace tandem::restart_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct Layout {
  std::string name;
  Flags flags;
  int culprit;
};

class RestartTest : public testing::TestWithParam<Layout> {};

// Twelve steps with a checkpoint every four: the fault comes two after one.
TEST_P(RestartTest, EndsWithTheSameBits) {
  const Flags job = Joined(SmallJob({"--epochs=2"}), GetParam().flags);
  const std::string straight = Fingerprint(RunJobForEvents(job));

  ProgramResult program;
  const Events events = RunJobForEvents(
      Joined(job, {"--max_restarts=2", "--restart_delay=0", "--save_every=4",
                   "--save_dir=" + NewFolder("restart")}),
      &program,
      FaultOf("point=before_optimizer,step=6,action=kill,rank=" +
              std::to_string(GetParam().culprit)));
  EXPECT_EQ(Fingerprint(events), straight);
  // The file has both attempts, one behind the other.
  EXPECT_THAT(StepsOf(events),
              testing::ElementsAre(1, 2, 3, 4, 5, 5, 6, 7, 8, 9, 10, 11, 12));
  EXPECT_THAT(program.err, AllOf(HasSubstr("killed by signal 9 (SIGKILL)"),
                                 HasSubstr("tandem: restart 1 of 2 in 0 s"),
                                 Not(HasSubstr("restart 2"))));
  EXPECT_THAT(program.out, HasSubstr("at step 4"));
}

INSTANTIATE_TEST_SUITE_P(
    All, RestartTest,
    testing::Values(
        Layout{"Single", {}, 0},
        Layout{"Ddp", {"--nproc_per_node=3", "--batch_size=15"}, 2},
        Layout{"Pipeline",
               {"--nproc_per_node=2", "--pipe=2", "--microbatch_size=4"},
               1},
        Layout{"Hybrid",
               {"--nproc_per_node=4", "--pipe=2", "--microbatch_size=4"},
               3}),
    [](const auto& info) { return info.param.name; });

TEST(RestartTest, BeforeTheFirstCheckpointItBeginsAnew) {
  const Flags job = SmallJob({"--epochs=1", "--nproc_per_node=2"});
  const std::string straight = Fingerprint(RunJobForEvents(job));
  const Events events = RunJobForEvents(
      Joined(job, {"--max_restarts=1", "--restart_delay=0",
                   "--save_dir=" + NewFolder("restart")}),
      nullptr, FaultOf("point=before_optimizer,step=3,action=kill,rank=0"));
  EXPECT_EQ(Fingerprint(events), straight);
}

// Its checkpoints could not be told from this one's.
TEST(RestartTest, AnotherJobsFolderIsRefused) {
  const std::string folder = NewFolder("restart");
  RunJobForEvents(SmallJob({"--max_steps=2", "--save_dir=" + folder}));
  const ProgramResult refused = RunProgram(
      kTrain, SmallJob({"--max_restarts=1", "--save_dir=" + folder}));
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("has checkpoints of another job"),
                                 HasSubstr("Give --resume=auto")));
  RunJobForEvents(SmallJob({"--max_steps=4", "--max_restarts=1",
                            "--save_dir=" + folder, "--resume=" + folder}));
}

TEST(RestartTest, WhatTheUserGaveIsNotTriedAgain) {
  const ProgramResult refused =
      RunProgram(kTrain, SmallJob({"--max_restarts=5", "--nproc_per_node=2",
                                   "--resume=/nowhere/at_all"}));
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, Not(HasSubstr("tandem: restart")));
}

// It goes back to its last checkpoint, and comes to the same loss.
TEST(RestartTest, WhatDivergesAgainIsNotTriedAThirdTime) {
  const std::string folder = NewFolder("restart");
  const Flags job = SmallJob({"--save_dir=" + folder});
  RunJobForEvents(Joined(job, {"--max_steps=2"}));
  const ProgramResult diverged = RunProgram(
      kTrain, Joined(job, {"--resume=auto", "--learning_rate=1e30",
                           "--max_restarts=5", "--restart_delay=0"}));
  EXPECT_EQ(diverged.exit_code, 1);
  EXPECT_THAT(diverged.err,
              AllOf(HasSubstr("the loss of step 4 is "),
                    HasSubstr("training has diverged"),
                    HasSubstr("tandem: restart 1 of 5"),
                    HasSubstr("ended twice in the same way at the same step"),
                    Not(HasSubstr("restart 2 of 5"))));
  const std::string resumed = "resumed " + folder + "/step-000000002 at step 2";
  const size_t first = diverged.out.find(resumed);
  ASSERT_NE(first, std::string::npos) << diverged.out;
  EXPECT_NE(diverged.out.find(resumed, first + 1), std::string::npos)
      << diverged.out;
  EXPECT_THAT(NamesIn(folder), testing::ElementsAre("step-000000002"));
}

// Two launchers, each of which has ranks that end because the other's died.
TEST(RestartTest, NodesStartAgainTogether) {
  const std::string straight = Fingerprint(
      RunJobForEvents(SmallJob({"--epochs=2", "--nproc_per_node=2"})));
  const std::string folder = NewFolder("restart");
  const Flags job = SmallJob({"--epochs=2", "--nproc_per_node=1", "--nnodes=2",
                              "--master_addr=127.0.0.1",
                              "--master_port=" + std::to_string(FreePort()),
                              "--max_restarts=2", "--restart_delay=0.1",
                              "--save_every=4", "--save_dir=" + folder});
  const ProgramOptions fault =
      FaultOf("point=before_optimizer,step=6,action=kill,rank=1");
  Program node1(kTrain, Joined(job, {"--node_rank=1"}), fault);
  const Events events =
      RunJobForEvents(Joined(job, {"--node_rank=0"}), nullptr, fault);
  const ProgramResult other = node1.Wait();
  EXPECT_EQ(other.exit_code, 0) << other.err;
  EXPECT_EQ(Fingerprint(events), straight);
}

}  // namespace
}  // namespace tandem::restart_test
