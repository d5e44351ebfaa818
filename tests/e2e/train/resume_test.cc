// A resumed job ends with the same bits as one that was never stopped.

#include <signal.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/train/runs.h"

namespace tandem {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

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

// Of two epochs of 100 samples in steps of 16: six steps each, or a seventh of
// what is left.
TEST(ResumeFolderTest, SamplesAreCountedThroughEpochsAndResumes) {
  const auto samples_of = [](const Events& events) {
    std::vector<int> samples;
    for (const auto& step : EventsOf(events, "step")) {
      samples.push_back(step["samples"]);
    }
    return samples;
  };
  for (const bool drops : {true, false}) {
    const Flags job =
        SmallJob({"--synthetic_samples=100", "--epochs=2", "--log_every=1",
                  drops ? "--drop_last" : "--nodrop_last"});
    std::vector<int> expected;
    for (const int epoch : {0, 1}) {
      const int before = epoch * (drops ? 96 : 100);
      for (int step = 1; step <= 6; ++step) {
        expected.push_back(before + 16 * step);
      }
      if (!drops) expected.push_back(before + 100);
    }
    EXPECT_EQ(samples_of(RunJobForEvents(job)), expected);
    const std::string folder = NewFolder("counted");
    RunJobForEvents(Joined(job, {"--max_steps=9", "--save_dir=" + folder}));
    expected.erase(expected.begin(), expected.begin() + 9);
    EXPECT_EQ(samples_of(RunJobForEvents(Joined(job, {"--resume=" + folder}))),
              expected);
  }
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

// Another length is another order of samples: in the midst of an epoch some
// would be lost and others come twice.
TEST(ResumeOtherDataTest, InTheMidstOfAnEpochItIsRefused) {
  const std::string folder = NewFolder("data");
  RunJobForEvents(SmallJob({"--max_steps=3", "--save_dir=" + folder}));
  const ProgramResult refused = RunProgram(
      kTrain, SmallJob({"--synthetic_samples=960", "--resume=" + folder}));
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err,
              HasSubstr("in the midst of epoch 1 of another training set "
                        "(training_samples 96 there, 960 here)"));
  // Its weights are as good as ever.
  RunJobForEvents(SmallJob(
      {"--synthetic_samples=960", "--resume=" + folder, "--eval_only"}));
}

TEST(ResumeOtherDataTest, BehindAnEpochTheNextOneIsOfTheNewData) {
  const std::string folder = NewFolder("data");
  RunJobForEvents(SmallJob({"--save_dir=" + folder}));
  const Events events = RunJobForEvents(SmallJob(
      {"--synthetic_samples=192", "--max_steps=9", "--resume=" + folder}));
  const Events steps = EventsOf(events, "step");
  ASSERT_EQ(steps.size(), 3u);
  EXPECT_EQ(steps.front()["step"], 7);
  EXPECT_EQ(steps.front()["epoch"], 2);
}

TEST(ResumeWithOtherSettingsTest, ALineSaysWhatDiffers) {
  const std::string folder = NewFolder("settings");
  RunJobForEvents(SmallJob(
      {"--max_steps=3", "--lr_schedule=cosine", "--save_dir=" + folder}));
  ProgramResult program;
  const Flags resumed = {"--max_steps=3", "--lr_schedule=cosine",
                         "--resume=" + folder};
  RunJobForEvents(SmallJob(resumed), &program);
  EXPECT_THAT(program.out, Not(HasSubstr("note: ")));
  RunJobForEvents(
      SmallJob(Joined(
          resumed, {"--max_steps=5", "--weight_decay=0.1", "--momentum=0.5"})),
      &program);
  EXPECT_THAT(program.out,
              HasSubstr("note: other settings than those of the checkpoint: "
                        "--momentum=0.5 (0.9 then), --weight_decay=0.1 (0 "
                        "then)\n"));
  EXPECT_THAT(program.out,
              HasSubstr("note: --lr_schedule=cosine ends at step 5 now, and "
                        "was to end at step 3: "));
}

TEST(ResumeWithOtherSettingsTest, WhatCannotBeSaysByWhichFlag) {
  struct Refusal {
    Flags saved;
    Flags resumed;
    std::string says;
  };
  const Flags gpt = {"--model=gpt_tiny", "--dataset=synthetic_tokens",
                     "--synthetic_shape=8", "--layers=2"};
  for (const Refusal& each : std::vector<Refusal>{
           {{"--optimizer=adamw"},
            {"--optimizer=adamw", "--amsgrad"},
            "; this job has --amsgrad=true (false then): give what it was "
            "saved with"},
           {{}, {"--momentum=0"}, "this job has --momentum=0 (0.9 then)"},
           {gpt, Joined(gpt, {"--layers=3"}),
            "n_layer is 2 there and 3 here: give the same --model"}}) {
    const std::string folder = NewFolder("other");
    RunJobForEvents(SmallJob(
        Joined(each.saved, {"--max_steps=1", "--save_dir=" + folder})));
    const ProgramResult refused = RunProgram(
        kTrain, SmallJob(Joined(each.resumed,
                                {"--max_steps=2", "--resume=" + folder})));
    EXPECT_EQ(refused.exit_code, 2) << refused.out;
    EXPECT_THAT(refused.err,
                AllOf(HasSubstr("--resume=" + folder), HasSubstr(each.says)));
  }
}

// A checkpoint has the first replica's.
TEST(ResumeFolderTest, SaysThatReplicasOwnParametersBecomeAlike) {
  const std::string folder = NewFolder("own");
  const Flags job =
      SmallJob({"--nproc_per_node=2", "--parameters_to_ignore=fc1.weight"});
  RunJobForEvents(Joined(job, {"--max_steps=2", "--save_dir=" + folder}));
  ProgramResult program;
  RunJobForEvents(Joined(job, {"--max_steps=3", "--resume=" + folder}),
                  &program);
  EXPECT_THAT(program.out, HasSubstr("--parameters_to_ignore"));
}

TEST(EvalOnlyTest, ScoresACheckpointAndChangesNothing) {
  const std::string folder = NewFolder("eval");
  const Events trained =
      RunJobForEvents(SmallJob({"--epochs=2", "--save_dir=" + folder}));
  for (const char* ranks : {"1", "2"}) {
    ProgramResult program;
    const Events events =
        RunJobForEvents(SmallJob({"--eval_only", "--resume=" + folder,
                                  "--nproc_per_node=" + std::string(ranks)}),
                        &program);
    EXPECT_THAT(program.out, HasSubstr("\n  test_samples "));
    for (const char* training : {"optimizer", "learning_rate",
                                 "optimizer_state", "training_samples"}) {
      EXPECT_THAT(program.out,
                  Not(HasSubstr("\n  " + std::string(training) + " ")));
    }
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
