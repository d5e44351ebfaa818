// What --resume and --eval_only take from a folder, what they say, and what
// they refuse.

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/train/job_table.h"
#include "tests/e2e/train/runs.h"

namespace tandem::resume_folder_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Runs it with a folder of its own for checkpoints, whose name it returns.
std::string Saved(const std::string& flags) {
  std::string folder = NewFolder("saved");
  RunJobForEvents(Joined(Small(flags), {"--save_dir=" + folder}));
  return folder;
}

TEST(ResumeFolderTest, GoesOnFromTheLatestOfAFolder) {
  const std::string folder = Saved("--max_steps=3");
  const Events events = RunJobForEvents(SmallJob(
      {"--max_steps=5", "--resume=" + folder, "--save_dir=" + folder}));
  EXPECT_EQ(EventsOf(events, "step").front()["step"], 4);
  const ProgramResult latest = RunProgram(kInspect, {folder});
  EXPECT_THAT(latest.out, HasSubstr(Fingerprint(events)));
}

// Two epochs of 100 samples in steps of 16 have six steps each, or a seventh
// with what is left.
TEST(ResumeFolderTest, SamplesAreCountedThroughEpochsAndResumes) {
  const auto samples_of = [](const Events& events) {
    std::vector<int> samples;
    for (const auto& step : EventsOf(events, "step")) {
      samples.push_back(step["samples"]);
    }
    return samples;
  };
  for (const bool drops : {true, false}) {
    const std::string job = std::string("--synthetic_samples=100 --epochs=2 ") +
                            (drops ? "--drop_last" : "--nodrop_last");
    std::vector<int> expected;
    for (const int epoch : {0, 1}) {
      const int before = epoch * (drops ? 96 : 100);
      for (int step = 1; step <= 6; ++step) {
        expected.push_back(before + 16 * step);
      }
      if (!drops) expected.push_back(before + 100);
    }
    EXPECT_EQ(samples_of(RunJobForEvents(Small(job))), expected);
    const std::string folder = Saved(job + " --max_steps=9");
    expected.erase(expected.begin(), expected.begin() + 9);
    EXPECT_EQ(samples_of(RunJobForEvents(Small(job + " --resume=" + folder))),
              expected);
  }
}

TEST(ResumeFolderTest, SaysWhenNothingIsLeftToTrain) {
  const std::string folder = NewFolder("done");
  const Events first =
      RunJobForEvents(Small("--max_steps=3 --save_dir=" + folder));
  ProgramResult program;
  const Events again =
      RunJobForEvents(Small("--max_steps=3 --resume=" + folder), &program);
  EXPECT_THAT(program.out, HasSubstr("nothing left to train"));
  EXPECT_EQ(Fingerprint(again), Fingerprint(first));
}

// Another length is another order of samples: in the midst of an epoch some
// would be lost and others come twice.
TEST(ResumeOtherDataTest, InTheMidstOfAnEpochItIsRefused) {
  const Flags job =
      Small("--synthetic_samples=960 --resume=" + Saved("--max_steps=3"));
  ExpectRefused(job, {"OtherData", "",
                      "in the midst of epoch 1 of another training set "
                      "(training_samples 96 there, 960 here)"});
  // Its weights are as good as ever.
  RunJobForEvents(Joined(job, {"--eval_only"}));
}

TEST(ResumeOtherDataTest, BehindAnEpochTheNextOneIsOfTheNewData) {
  const Events steps = EventsOf(
      RunJobForEvents(
          Small("--synthetic_samples=192 --max_steps=9 --resume=" + Saved(""))),
      "step");
  ASSERT_EQ(steps.size(), 3u);
  EXPECT_EQ(steps.front()["step"], 7);
  EXPECT_EQ(steps.front()["epoch"], 2);
}

TEST(ResumeWithOtherSettingsTest, ALineSaysWhatDiffers) {
  const std::string job = "--max_steps=3 --lr_schedule=cosine";
  const std::string resumed = job + " --resume=" + Saved(job);
  ProgramResult program;
  RunJobForEvents(Small(resumed), &program);
  EXPECT_THAT(program.out, Not(HasSubstr("note: ")));
  RunJobForEvents(
      Small(resumed + " --max_steps=5 --weight_decay=0.1 --momentum=0.5"),
      &program);
  EXPECT_THAT(program.out,
              HasSubstr("note: other settings than those of the checkpoint: "
                        "--momentum=0.5 (0.9 then), --weight_decay=0.1 (0 "
                        "then)\n"));
  EXPECT_THAT(program.out,
              HasSubstr("note: --lr_schedule=cosine ends at step 5 now, and "
                        "was to end at step 3: "));
}

TEST(ResumeWithOtherSettingsTest, AveragesMayBeginLater) {
  const std::string folder = Saved("--max_steps=3");
  ProgramResult program;
  RunJobForEvents(Small("--max_steps=5 --ema_decay=0.75 --resume=" + folder),
                  &program);
  EXPECT_THAT(program.out,
              HasSubstr("note: other settings than those of the checkpoint: "
                        "--ema_decay=0.75 (0 then)\n"));
}

// A job goes on only as what it was.
struct OtherJob {
  std::string saved;
  RefusalRow resumed;
};

TEST(ResumeWithOtherSettingsTest, WhatCannotBeSaysByWhichFlag) {
  const std::string gpt =
      "--model=gpt_tiny --dataset=synthetic_tokens --synthetic_shape=8 "
      "--layers=2";
  for (const OtherJob& other : std::vector<OtherJob>{
           {"--optimizer=adamw",
            {"Amsgrad", "--optimizer=adamw --amsgrad",
             "; this job has --amsgrad=true (false then): give what it was "
             "saved with"}},
           {"",
            {"Momentum", "--momentum=0",
             "this job has --momentum=0 (0.9 then)"}},
           {"--ema_decay=0.9",
            {"NoAverages", "",
             ".ema has no place here|this job has --ema_decay=0 (0.9 then): "
             "give what it was saved with"}},
           {gpt,
            {"Layers", gpt + " --layers=3",
             "n_layer is 2 there and 3 here: give the same --model"}}}) {
    const std::string folder = Saved(other.saved + " --max_steps=1");
    RefusalRow row = other.resumed;
    row.flags += " --max_steps=2 --resume=" + folder;
    row.says += "|--resume=" + folder;
    ExpectRefused(SmallJob(), row);
  }
}

TEST(OtherJobTest, ResumingNamesWhatDiffers) {
  const std::string resume = " --resume=" + Saved("--max_steps=1");
  for (const auto& [flag, then] :
       {std::pair("--model=mlp_deep", "--model=mlp_small"),
        std::pair("--seed=7", "--seed=0"),
        std::pair("--batch_size=32", "--batch_size=16"),
        std::pair("--optimizer=adam", "--optimizer=sgd")}) {
    ExpectRefused(SmallJob(),
                  {"OtherJob", flag + resume, std::string(flag) + "|" + then});
  }
}

// A checkpoint has the first replica's.
TEST(ResumeFolderTest, SaysThatReplicasOwnParametersBecomeAlike) {
  const std::string job =
      "--nproc_per_node=2 --parameters_to_ignore=fc1.weight";
  const std::string folder = Saved(job + " --max_steps=2");
  ProgramResult program;
  RunJobForEvents(Small(job + " --max_steps=3 --resume=" + folder), &program);
  EXPECT_THAT(program.out, HasSubstr("--parameters_to_ignore"));
}

TEST(EvalOnlyTest, ScoresACheckpointAndChangesNothing) {
  const std::string folder = NewFolder("eval");
  const Events trained =
      RunJobForEvents(Small("--epochs=2 --save_dir=" + folder));
  for (const std::string ranks : {"1", "2"}) {
    ProgramResult program;
    const Events events = RunJobForEvents(
        Small("--eval_only --resume=" + folder + " --nproc_per_node=" + ranks),
        &program);
    EXPECT_THAT(program.out, HasSubstr("\n  test_samples "));
    for (const std::string training : {"optimizer", "learning_rate",
                                       "optimizer_state", "training_samples"}) {
      EXPECT_THAT(program.out, Not(HasSubstr("\n  " + training + " ")));
    }
    EXPECT_TRUE(EventsOf(events, "step").empty());
    EXPECT_EQ(EventsOf(events, "eval")[0]["accuracy"],
              trained.back()["test_accuracy"]);
    EXPECT_EQ(Fingerprint(events), Fingerprint(trained));
  }
}

TEST(ResumeOnOtherRanksTest, TheEpochsRemainingSamplesAreDealtAnew) {
  const std::string folder = Saved("--max_steps=3 --nproc_per_node=2");
  const std::vector<int> steps =
      StepsOf(RunJobForEvents(Small("--resume=" + folder)));
  // Half of the epoch's 96 samples are left: three steps of 16.
  ASSERT_EQ(steps.size(), 3u);
  EXPECT_EQ(steps.back(), 6);
}

// A checkpoint of other data has other shapes, whose reason is told.
TEST(ResumeFolderTest, WhatDoesNotFitNamesTheDataThatDiffer) {
  const std::string folder = NewFolder("other_shapes");
  const Flags job = Small("--synthetic_shape=3,8,8 --max_steps=1");
  RunJobForEvents(Joined(job, {"--save_dir=" + folder}));
  for (const std::string how : {"--eval_only", "--eval_only --dry_run"}) {
    ExpectRefused(Joined(job, {"--resume=" + folder}),
                  {"OtherShape", how + " --synthetic_shape=3,4,4",
                   "the data differ (|3x8x8 there, 3x4x4 here|--image_size",
                   kAnyFailure});
  }
}

}  // namespace
}  // namespace tandem::resume_folder_test
