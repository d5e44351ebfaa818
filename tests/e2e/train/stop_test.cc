// Jobs that are stopped or that lose a rank: a clear line, the right exit code,
// no half-written checkpoint, no process left.

#include <signal.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/train/runs.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

// Goes on until it is stopped.
Flags LongJob(const Flags& more = {}) {
  return Joined(SmallJob({"--epochs=1000000", "--batch_size=12"}), more);
}

const Flags kThreeRanks = {"--nproc_per_node=3"};

class StopTest : public testing::TestWithParam<const char*> {};

TEST_P(StopTest, CtrlCStopsTheWholeJob) {
  const std::string folder = NewFolder("stop");
  Program program(
      kTrain, LongJob({GetParam(), "--save_dir=" + folder, "--save_every=20"}));
  ASSERT_TRUE(program.WaitForOutput("step     100/")) << program.Wait().err;
  EXPECT_THAT(StopBySignal(program, SIGINT).err, HasSubstr("SIGINT"));
  const ProgramResult latest = RunProgram(kInspect, {folder});
  EXPECT_EQ(latest.exit_code, 0) << latest.err;
}

TEST_P(StopTest, SigtermStopsTheWholeJob) {
  Program program(kTrain, LongJob({GetParam()}));
  ASSERT_TRUE(program.WaitForOutput("step"));
  StopBySignal(program, SIGTERM);
}

struct Layout {
  std::string name;
  int signal;
  Flags flags;
};

// Its epochs are long, so that the signal comes in a step.
Flags LongEpochs(const Flags& more) {
  return Joined(LongJob({"--synthetic_samples=96000"}), more);
}

class StopAndGoOnTest : public testing::TestWithParam<Layout> {};

// "stopped after step 123; saved in ..."
int StepOf(const std::string& out) {
  const std::string before = "stopped after step ";
  const size_t at = out.find(before);
  return at == std::string::npos ? -1
                                 : std::stoi(out.substr(at + before.size()));
}

TEST_P(StopAndGoOnTest, AllRanksStopAtOneStepWithACheckpointOfIt) {
  const std::string folder = NewFolder("stop");
  Program program(
      kTrain, LongEpochs(Joined(GetParam().flags, {"--save_dir=" + folder})));
  ASSERT_TRUE(program.WaitForOutput("  100/")) << program.Wait().err;
  const ProgramResult result = StopBySignal(program, GetParam().signal);
  const int step = StepOf(result.out);
  ASSERT_GE(step, 100) << result.out;
  EXPECT_THAT(result.out, HasSubstr("saved in " + folder));

  const Flags some_more = {"--max_steps=" + std::to_string(step + 3)};
  const Flags whole = LongEpochs(Joined(GetParam().flags, some_more));
  EXPECT_EQ(Fingerprint(RunJobForEvents(Joined(whole, {"--resume=" + folder}))),
            Fingerprint(RunJobForEvents(whole)));
}

INSTANTIATE_TEST_SUITE_P(
    All, StopAndGoOnTest,
    testing::Values(
        Layout{"Single", SIGTERM, {}}, Layout{"Ddp", SIGUSR1, kThreeRanks},
        Layout{"Pipeline",
               SIGHUP,
               {"--nproc_per_node=2", "--pipe=2", "--microbatch_size=4"}},
        Layout{"Hybrid",
               SIGINT,
               {"--nproc_per_node=4", "--pipe=2", "--microbatch_size=3"}},
        Layout{"Tensor",
               SIGTERM,
               {"--nproc_per_node=2", "--tensor=2", "--model=gpt_tiny",
                "--dataset=synthetic_tokens", "--synthetic_shape=8"}},
        Layout{"Shards",
               SIGUSR1,
               {"--nproc_per_node=3", "--shard=parameters",
                "--shard_min_num_params=1"}}),
    [](const auto& info) { return info.param.name; });

// Nobody could tell otherwise that there is no checkpoint of it.
TEST(UnsavedStopTest, SaysWhatKeptItFromBeingSaved) {
  for (const char* how : {"--async_save", "--noasync_save"}) {
    const std::string folder = NewFolder("unsaved");
    Program program(kTrain, LongEpochs({"--save_dir=" + folder, how}),
                    FaultOf("point=folder_rename,action=fail"));
    ASSERT_TRUE(program.WaitForOutput("  100/")) << program.Wait().err;
    const ProgramResult result = StopBySignal(program, SIGTERM);
    EXPECT_THAT(result.out, HasSubstr("; it is not saved")) << how;
    EXPECT_THAT(result.err, HasSubstr("could not be saved: ")) << how;
    EXPECT_THAT(NamesIn(folder), testing::IsEmpty());
  }
}

struct EvaluationLayout {
  std::string name;
  int signal;
  Flags flags;
  std::string batch;  // before which the signal comes, from 0
  int step;           // the epoch's last
};

// The signal comes while the others wait for one rank, which is about to
// evaluate a batch.
class StopInEvaluationTest : public testing::TestWithParam<EvaluationLayout> {};

TEST_P(StopInEvaluationTest, AllRanksBreakItOffWithACheckpointOfTheEpoch) {
  const std::string folder = NewFolder("stop");
  Program program(
      kTrain,
      LongJob(
          Joined({"--async_save", "--save_dir=" + folder}, GetParam().flags)),
      FaultOf("point=evaluate:" + GetParam().batch + ",rank=1,action=delay:4"));
  ASSERT_TRUE(program.WaitForOutput("TANDEM_FAULT acts at evaluate"))
      << program.Wait().err;
  const ProgramResult result = StopBySignal(program, GetParam().signal);
  EXPECT_EQ(StepOf(result.out), GetParam().step) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("saved in " + folder));
  EXPECT_EQ(RunProgram(kInspect, {folder}).exit_code, 0);
  // The epoch is scored after all.
  const Events events = RunJobForEvents(
      LongJob(Joined({"--resume=" + folder,
                      "--max_steps=" + std::to_string(GetParam().step + 1)},
                     GetParam().flags)));
  const Events scores = EventsOf(events, "eval");
  ASSERT_EQ(scores.size(), 2u);
  EXPECT_EQ(scores[0]["epoch"], 1);
  EXPECT_EQ(scores[1]["epoch"], 2);
}

// With no checkpoint of each epoch, either.
TEST(UnsavedEpochTest, IsSavedWhereItsEvaluationIsBrokenOff) {
  const std::string folder = NewFolder("stop");
  Program program(kTrain,
                  LongJob({"--nproc_per_node=3", "--save_every_epochs=0",
                           "--save_dir=" + folder}),
                  FaultOf("point=evaluate:0,rank=1,action=delay:4"));
  ASSERT_TRUE(program.WaitForOutput("TANDEM_FAULT acts at evaluate"))
      << program.Wait().err;
  const ProgramResult result = StopBySignal(program, SIGTERM);
  EXPECT_EQ(StepOf(result.out), 8) << result.out << result.err;
  EXPECT_THAT(NamesIn(folder), testing::ElementsAre("step-000000008"));
}

INSTANTIATE_TEST_SUITE_P(
    All, StopInEvaluationTest,
    testing::Values(EvaluationLayout{"Ddp", SIGUSR1, kThreeRanks, "0", 8},
                    // Rank 1 has one batch of the 513 samples, rank 0 has two.
                    EvaluationLayout{
                        "Uneven",
                        SIGTERM,
                        {"--nproc_per_node=2", "--synthetic_samples=4104",
                         "--batch_size=1026", "--eval_batch_size=256"},
                        "1",
                        4},
                    EvaluationLayout{"Pipeline",
                                     SIGINT,
                                     {"--nproc_per_node=2", "--pipe=2",
                                      "--microbatch_size=4"},
                                     "0",
                                     8},
                    EvaluationLayout{"Hybrid",
                                     SIGTERM,
                                     {"--nproc_per_node=4", "--pipe=2",
                                      "--microbatch_size=3"},
                                     "0",
                                     8}),
    [](const auto& info) { return info.param.name; });

TEST(SignalledRankTest, StopsAll) {
  Program program(kTrain, LongEpochs({"--nproc_per_node=3"}));
  ASSERT_TRUE(program.WaitForOutput("  100/")) << program.Wait().err;
  const ProgramResult result = StopBySignalToRank(program, 2, SIGTERM);
  EXPECT_GE(StepOf(result.out), 100) << result.out;
  EXPECT_THAT(result.out, HasSubstr("nothing is saved"));
}

INSTANTIATE_TEST_SUITE_P(Ranks, StopTest,
                         testing::Values("--nproc_per_node=1",
                                         "--nproc_per_node=3"));

TEST(KilledRankTest, TheLauncherNamesItAndEndsTheOthers) {
  Program program(kTrain, LongJob({"--nproc_per_node=3"}));
  ASSERT_TRUE(program.WaitForOutput("step"));
  const ProgramResult result = StopBySignalToRank(program, 2, SIGKILL);
  EXPECT_THAT(result.err, HasSubstr("rank 2"));
  EXPECT_THAT(result.err, HasSubstr("SIGKILL"));
}

}  // namespace
}  // namespace tandem
