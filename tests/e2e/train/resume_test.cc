// A resumed job ends with the same bits as one that was never stopped.

#include <signal.h>
#include <unistd.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/train/runs.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

struct ResumeCase {
  std::string name;
  Flags flags;
};

class ResumeTest : public testing::TestWithParam<ResumeCase> {};

// Six steps an epoch: step 4 is in the middle of one, step 6 at its end.
TEST_P(ResumeTest, EndsWithTheSameBits) {
  Flags job = SmallJob({"--epochs=3"});
  job.insert(job.end(), GetParam().flags.begin(), GetParam().flags.end());
  const std::string straight = Fingerprint(RunJobForEvents(job));

  for (const char* stop : {"4", "6"}) {
    const std::string folder = NewFolder("resume");
    Flags first = job;
    first.push_back("--save_dir=" + folder);
    first.push_back("--save_every=" + std::string(stop));
    RunJobForEvents(first);
    Flags second = job;
    second.push_back("--resume=" + folder + "/step-00000000" + stop);
    ProgramResult program;
    const Events events = RunJobForEvents(second, &program);
    EXPECT_THAT(program.out, HasSubstr("at step " + std::string(stop)));
    EXPECT_EQ(EventsOf(events, "step").front()["step"], atoi(stop) + 1);
    EXPECT_EQ(Fingerprint(events), straight) << stop;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, ResumeTest,
    testing::Values(
        ResumeCase{"Sgd", {}},
        ResumeCase{"SgdScheduled",
                   {"--nesterov", "--weight_decay=0.01", "--lr_schedule=cosine",
                    "--lr_warmup_steps=5"}},
        ResumeCase{"AdamW",
                   {"--optimizer=adamw", "--weight_decay=0.1", "--amsgrad"}},
        ResumeCase{"Adam", {"--optimizer=adam", "--clip_grad_norm=0.5"}},
        ResumeCase{"BatchNormBuffers",
                   {"--model=resnet18", "--synthetic_shape=3,32,32",
                    "--synthetic_samples=24", "--batch_size=4"}},
        ResumeCase{"Dropout", {"--model=mlp_dropout", "--nproc_per_node=2"}},
        ResumeCase{"TiedWeights",
                   {"--model=gpt_tiny_tied", "--dataset=synthetic_tokens",
                    "--synthetic_shape=8", "--synthetic_samples=24",
                    "--batch_size=4", "--optimizer=adamw"}},
        ResumeCase{"TwoRanks", {"--nproc_per_node=2"}},
        ResumeCase{"ThreeRanks",
                   {"--nproc_per_node=3", "--batch_size=15",
                    "--synthetic_samples=94", "--optimizer=adam"}}),
    [](const auto& info) { return info.param.name; });

TEST(ResumeFolderTest, GoesOnFromTheLatestOfAFolder) {
  const std::string folder = NewFolder("latest");
  RunJobForEvents(SmallJob({"--max_steps=3", "--save_dir=" + folder}));
  ProgramResult program;
  const Events events = RunJobForEvents(
      SmallJob({"--max_steps=5", "--resume=" + folder, "--save_dir=" + folder}),
      &program);
  EXPECT_EQ(EventsOf(events, "step").front()["step"], 4);
  const ProgramResult latest = RunProgram(kInspect, {folder});
  EXPECT_THAT(latest.out, HasSubstr(Fingerprint(events)));
}

TEST(ResumeFolderTest, SaysWhenNothingIsLeftToTrain) {
  const std::string folder = NewFolder("done");
  const Events first =
      RunJobForEvents(SmallJob({"--max_steps=3", "--save_dir=" + folder}));
  ProgramResult program;
  const Events again = RunJobForEvents(
      SmallJob({"--max_steps=3", "--resume=" + folder}), &program);
  EXPECT_THAT(program.out, HasSubstr("nothing left to train"));
  EXPECT_EQ(Fingerprint(again), Fingerprint(first));
}

TEST(EvalOnlyTest, ScoresACheckpointAndChangesNothing) {
  const std::string folder = NewFolder("eval");
  const Events trained =
      RunJobForEvents(SmallJob({"--epochs=2", "--save_dir=" + folder}));
  for (const char* ranks : {"1", "2"}) {
    const Events events =
        RunJobForEvents(SmallJob({"--eval_only", "--resume=" + folder,
                                  "--nproc_per_node=" + std::string(ranks)}));
    EXPECT_TRUE(EventsOf(events, "step").empty());
    EXPECT_EQ(EventsOf(events, "eval")[0]["accuracy"],
              trained.back()["test_accuracy"]);
    EXPECT_EQ(Fingerprint(events), Fingerprint(trained));
  }
}

TEST(ResumeOnOtherRanksTest, TheEpochsRemainingSamplesAreDealtAnew) {
  const std::string folder = NewFolder("ranks");
  RunJobForEvents(SmallJob(
      {"--max_steps=3", "--save_dir=" + folder, "--nproc_per_node=2"}));
  const Events events = RunJobForEvents(SmallJob({"--resume=" + folder}));
  // Half of the epoch's 96 samples are left: three steps of 16.
  ASSERT_EQ(EventsOf(events, "step").size(), 3);
  EXPECT_EQ(EventsOf(events, "step").back()["step"], 6);
}

}  // namespace
}  // namespace tandem
