// Jobs that lose a rank, and are started again by their launcher: they end with
// the bits of one that lost none. Elastic ones go on with fewer or more ranks,
// and train on the same samples in the same steps.

#include <signal.h>

#include <iostream>
#include <set>
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

const Flags kTexts = {"--model=gpt_tiny", "--dataset=synthetic_tokens",
                      "--synthetic_shape=8"};

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
               3},
        Layout{"Tensor", Joined(kTexts, {"--nproc_per_node=2", "--tensor=2"}),
               1},
        Layout{"Shards",
               {"--nproc_per_node=3", "--batch_size=15", "--shard=parameters",
                "--shard_min_num_params=1"},
               1},
        Layout{"ShardsOfTensorParts",
               Joined(kTexts, {"--nproc_per_node=4", "--tensor=2",
                               "--shard=parameters"}),
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
  const Flags job =
      SmallJob({"--epochs=2", "--max_restarts=2", "--restart_delay=0.1",
                "--save_every=4", "--save_dir=" + folder});
  const int port = FreePort();
  const ProgramOptions fault =
      FaultOf("point=before_optimizer,step=6,action=kill,rank=1");
  Program node1(kTrain, Joined(job, NodeFlags(2, 1, port)), fault);
  const Events events =
      RunJobForEvents(Joined(job, NodeFlags(2, 0, port)), nullptr, fault);
  const ProgramResult other = node1.Wait();
  EXPECT_EQ(other.exit_code, 0) << other.err;
  EXPECT_EQ(Fingerprint(events), straight);
}

constexpr char kDyingTrain[] = "tests/e2e/train/dying_train";

// With these flags several layouts have the same bits.
const Flags kReproducible = {"--reproducible", "--microbatch_size=2"};

std::set<int> DistinctStepsOf(const Events& events) {
  const std::vector<int> all = StepsOf(events);
  return {all.begin(), all.end()};
}

// Sixteen steps of 12 samples, of which three ranks do four or more, and two
// the rest.
Events RunWithThreeThenTwo(const Flags& job, std::string* err) {
  const std::string folder = NewFolder("elastic");
  const std::string metrics = folder + "/metrics.jsonl";
  const ProgramResult result = RunProgram(
      kDyingTrain,
      Joined(job,
             {"--nproc_per_node=3", "--min_ranks=1", "--max_restarts=3",
              "--restart_delay=0", "--save_every=4",
              "--save_dir=" + folder + "/saved", "--metrics_file=" + metrics}),
      FaultOf("point=before_optimizer,step=6,action=kill,rank=2"));
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.out,
              HasSubstr("attempt 3: 2 ranks (data 2 x pipe 1); each replica "
                        "has 6 of a step's 12 samples"));
  *err = result.err;
  return ReadEvents(metrics);
}

TEST(ElasticTest, FewerRanksGoOnWithTheBitsOfAResumedRun) {
  const Flags job = SmallJob({"--epochs=2", "--batch_size=12"});
  std::string err;
  const Events events = RunWithThreeThenTwo(job, &err);
  EXPECT_THAT(err,
              AllOf(HasSubstr("can run on 1, 2 or 3 ranks"),
                    HasSubstr("goes on with 2 ranks instead of 3: rank 2"),
                    HasSubstr("restart 2 of 3"), Not(HasSubstr("restart 3"))));
  EXPECT_EQ(DistinctStepsOf(events).size(), 16u);
  EXPECT_EQ(*DistinctStepsOf(events).rbegin(), 16);

  const std::string folder = NewFolder("resumed");
  RunJobForEvents(Joined(
      job, {"--nproc_per_node=3", "--max_steps=4", "--save_dir=" + folder}));
  const Events resumed = RunJobForEvents(
      Joined(job, {"--nproc_per_node=2", "--resume=" + folder}));
  EXPECT_EQ(Fingerprint(events), Fingerprint(resumed));
}

// One rank from end to end sees each sample of an epoch once: so do these.
TEST(ElasticTest, NoSampleIsLostOrRepeated) {
  const Flags job =
      SmallJob(Joined({"--epochs=2", "--batch_size=12"}, kReproducible));
  std::string err;
  const Events events = RunWithThreeThenTwo(job, &err);
  EXPECT_EQ(Fingerprint(events), Fingerprint(RunJobForEvents(job)));
}

TEST(ElasticTest, ALayoutSaysOnHowManyRanksItCanRun) {
  const Flags pipeline = {"--pipe=2", "--max_restarts=1", "--max_steps=1",
                          "--microbatch_size=2"};
  ProgramResult program;
  RunJobForEvents(
      SmallJob(Joined(pipeline, {"--nproc_per_node=4", "--min_ranks=1"})),
      &program);
  EXPECT_THAT(program.err, HasSubstr("can run on 2 or 4 ranks"));
  const ProgramResult refused = RunProgram(
      kTrain,
      SmallJob(Joined(pipeline, {"--nproc_per_node=4", "--min_ranks=3"})));
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err,
              AllOf(HasSubstr("of 3 to 4 ranks this job can run on 4 alone"),
                    HasSubstr("--pipe=2")));
}

// Launchers of one rank each, of three that may come. Steps of the first
// attempt take long, so that others come meanwhile.
class ElasticNodesTest : public testing::Test {
 protected:
  Flags Node(int node, const Flags& more = {}) const {
    return Joined(
        SmallJob({"--synthetic_samples=12000", "--batch_size=12",
                  "--max_steps=1000", "--log_every=50"}),
        Joined(kReproducible, NodeFlags(3, node, port_)),
        Joined({"--min_ranks=1", "--max_restarts=3", "--restart_delay=0",
                "--join_timeout=0", "--save_dir=" + folder_},
               more));
  }
  Events RunAlone() const {
    return RunJobForEvents(Joined(Node(0), {"--nnodes=1", "--master_port=0",
                                            "--min_ranks=1", "--save_dir="}));
  }

  const std::string folder_ = NewFolder("elastic");
  const std::string metrics_ = NewFolder("metrics") + "/metrics.jsonl";
  const int port_ = FreePort();
  const ProgramOptions slow_ =
      FaultOf("point=before_optimizer,action=delay:0.05");
};

TEST_F(ElasticNodesTest, OneJoinsAndIsLost) {
  Program node0(kTrain, Node(0, {"--metrics_file=" + metrics_}), slow_);
  ASSERT_TRUE(node0.WaitForOutput(" 50/1000")) << node0.Wait().err;
  Program node1(kTrain, Node(1));
  ASSERT_TRUE(node0.WaitForOutput("attempt 2: 2 ranks")) << node0.Wait().err;
  node1.Signal(SIGKILL);
  const ProgramResult result = node0.Wait();
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(
      result.err,
      AllOf(
          HasSubstr("node 1 joined: this node's ranks stop after a step"),
          HasSubstr("attempt 2 has 2 ranks on nodes 0 and 1, now with node 1; "
                    "rank 0 on this one, node 0"),
          HasSubstr("attempt 3 has 1 rank on node 0, without node 1")));
  const Events events = ReadEvents(metrics_);
  EXPECT_EQ(DistinctStepsOf(events).size(), 20u);
  EXPECT_EQ(Fingerprint(events), Fingerprint(RunAlone()));
}

// The step, and the save after it, may take longer than ranks have that end.
TEST_F(ElasticNodesTest, OneThatJoinsLeavesTheOthersTimeForTheirStep) {
  const Flags few = {"--max_steps=10", "--log_every=1", "--stop_grace=1"};
  Program node0(kTrain, Node(0, Joined(few, {"--metrics_file=" + metrics_})),
                FaultOf("point=before_optimizer,action=delay:3"));
  ASSERT_TRUE(node0.WaitForOutput(" 1/10")) << node0.Wait().err;
  Program node1(kTrain, Node(1, few));
  const ProgramResult result = node0.Wait();
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("attempt 2 has 2 ranks on nodes 0 and 1"),
                    Not(HasSubstr("is killed"))));
  EXPECT_EQ(EventsOf(ReadEvents(metrics_), "step").size(), 10u) << "none twice";
}

// Nor does a rank give up that waits for another one's.
TEST_F(ElasticNodesTest, OneThatJoinsLeavesRanksThatWaitForOthersTheirTime) {
  const Flags few = {"--max_steps=10",     "--log_every=1", "--stop_grace=1",
                     "--nproc_per_node=2", "--max_ranks=4", "--batch_size=16"};
  Program node0(kTrain, Node(0, Joined(few, {"--metrics_file=" + metrics_})),
                FaultOf("point=before_optimizer,rank=0,action=delay:3"));
  ASSERT_TRUE(node0.WaitForOutput(" 1/10")) << node0.Wait().err;
  Program node1(kTrain, Node(1, few));
  const ProgramResult result = node0.Wait();
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("attempt 2 has 4 ranks on nodes 0 and 1"),
                    Not(HasSubstr("still waiting"))));
  EXPECT_EQ(EventsOf(ReadEvents(metrics_), "step").size(), 10u) << "none twice";
}

// A machine that is taken back: nothing is lost, not even a step.
TEST_F(ElasticNodesTest, OneThatIsStoppedLeaves) {
  const Flags two = {"--max_ranks=2", "--join_timeout=600", "--max_steps=200",
                     "--log_every=1"};
  Program node1(kTrain, Node(1, two), slow_);
  Program node0(kTrain, Node(0, Joined(two, {"--metrics_file=" + metrics_})),
                slow_);
  ASSERT_TRUE(node0.WaitForOutput(" 20/200")) << node0.Wait().err;
  node1.Signal(SIGTERM);
  EXPECT_EQ(node1.Wait().exit_code, 128 + SIGTERM);
  const ProgramResult result = node0.Wait();
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.err,
              HasSubstr("attempt 2 has 1 rank on node 0, without node 1"));
  const Events events = ReadEvents(metrics_);
  EXPECT_EQ(DistinctStepsOf(events).size(), 200u);
  EXPECT_EQ(EventsOf(events, "step").size(), 200u);
}

TEST_F(ElasticNodesTest, OneWithOtherFlagsIsSentAway) {
  Program node0(kTrain, Node(0, {"--metrics_file=" + metrics_}), slow_);
  ASSERT_TRUE(node0.WaitForOutput(" 50/1000")) << node0.Wait().err;
  const ProgramResult refused =
      RunProgram(kTrain, Node(1, {"--learning_rate=0.5"}));
  EXPECT_EQ(refused.exit_code, 2) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("--learning_rate is"));
  const ProgramResult result = node0.Wait();
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.err, HasSubstr("attempt 3 has 1 rank on node 0"));
}

}  // namespace
}  // namespace tandem::restart_test
