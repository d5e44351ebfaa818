// Evaluations within an epoch, and what follows from them: the best checkpoint,
// an early end, texts that a model makes while it trains.

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/program.h"
#include "tests/e2e/train/job_table.h"
#include "tests/e2e/train/runs.h"

namespace tandem::evaluation_test {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

const char kLayouts[][64] = {"--nproc_per_node=2",
                             "--devices_per_rank=2 --strategy=pipeline",
                             "--nproc_per_node=2 --pipe=2 --schedule=zb_h1",
                             "--nproc_per_node=4 --pipe=2"};

std::vector<std::string> Layouts() {
  return {std::begin(kLayouts), std::end(kLayouts)};
}

// The steps after which evaluations and samples came.
std::vector<int> StepsAfter(const Events& events) {
  std::vector<int> steps;
  for (const auto& each : events) steps.push_back(each["step"]);
  return steps;
}

// All of an epoch of six steps is evaluated in two samples less than a batch.
Flags Reproducible(const std::string& more) {
  return Small("--reproducible --microbatch_size=2 " + more);
}

void SameEvaluations(const JobRun& run, const JobRun& expected) {
  const Events tested = EventsOf(run.events, "eval");
  const Events wanted = EventsOf(expected.events, "eval");
  ASSERT_EQ(tested.size(), wanted.size());
  for (size_t i = 0; i < tested.size(); ++i) {
    for (const char* field : {"step", "samples", "count", "accuracy"}) {
      EXPECT_EQ(tested[i][field], wanted[i][field]) << i << field;
    }
    const double loss = wanted[i]["loss"];
    EXPECT_NEAR(tested[i]["loss"].get<double>(), loss, 1e-6 * loss) << i;
  }
}

TEST(EvaluateEveryTest, IsTheSameInEveryLayout) {
  const Flags job = Reproducible("--eval_every=2 --epochs=2 --max_steps=11");
  const JobRun& run = RunOnce(job);
  const Events tested = EventsOf(run.events, "eval");
  EXPECT_THAT(StepsAfter(tested), ElementsAre(2, 4, 6, 8, 10, 11));
  EXPECT_EQ(tested[1]["samples"], 4 * 16);
  EXPECT_EQ(tested[4]["epoch"], 2);
  EXPECT_THAT(run.program.out, HasSubstr("step 4  test: loss "));
  EXPECT_THAT(run.program.out, HasSubstr("epoch 1  test: loss "));
  EXPECT_EQ(run.events.back()["samples"], 11 * 16);
  ExpectSame(
      {"EvaluateEvery", job, Layouts(), Both(SameBits, SameEvaluations)});
}

TEST(EvaluateEveryTest, BatchesAreTheSameSamplesInEveryLayout) {
  const Flags job = Reproducible(
      "--batch_size=4 --eval_every=5 --eval_batches=2 --max_steps=7");
  const Events tested = EventsOf(RunOnce(job).events, "eval");
  EXPECT_THAT(StepsAfter(tested), ElementsAre(5, 7));
  EXPECT_EQ(tested[0]["count"], 8);  // of 12
  ExpectSame({"EvaluateBatches",
              job,
              {"--nproc_per_node=2", "--nproc_per_node=2 --pipe=2"},
              SameEvaluations});
  const Flags more = Reproducible("--eval_batches=1000000000000 --max_steps=1");
  EXPECT_EQ(EventsOf(RunOnce(more).events, "eval")[0]["count"], 12);
}

// The rate is too high, so that the loss does not fall steadily.
Flags Unsteady(const std::string& folder, const std::string& more) {
  return Small("--learning_rate=0.8 --epochs=2 --eval_every=1 --save_dir=" +
               folder + " " + more);
}

int BestStep(const Events& evaluations) {
  int best = 0;
  double least = 1e30;
  for (const auto& each : evaluations) {
    if (each["loss"].get<double>() >= least) continue;
    least = each["loss"];
    best = each["step"];
  }
  return best;
}

TEST(KeepBestTest, TheBestCheckpointStaysAndIsTheOneThatWasEvaluated) {
  for (const char* layout : {"", "--async_save", "--nproc_per_node=2",
                             "--devices_per_rank=2 --strategy=pipeline"}) {
    SCOPED_TRACE(layout);
    const std::string folder = NewFolder("best");
    const Events events = RunJobForEvents(Unsteady(
        folder, std::string("--keep_best=loss --keep_last=1 ") + layout));
    const Events tested = EventsOf(events, "eval");
    ASSERT_EQ(tested.size(), 12u);
    const int best = BestStep(tested);
    ASSERT_NE(best, 12);
    EXPECT_EQ(events.back()["best"]["step"], best);
    EXPECT_EQ(events.back()["best"]["checkpoint"], folder + "/best");
    const fs::path link = fs::read_symlink(folder + "/best");
    EXPECT_EQ(folder + "/" + link.string(), SavedStep(folder, best));
    EXPECT_FALSE(link.is_absolute());
    // The last one is the only other one.
    EXPECT_TRUE(fs::exists(SavedStep(folder, 12)));
    int saved = 0;
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (entry.is_directory() && !entry.is_symlink()) ++saved;
    }
    EXPECT_EQ(saved, 2);
    const Events again = RunJobForEvents(
        Small("--save_dir= --eval_only --resume=" + folder + "/best"));
    EXPECT_EQ(EventsOf(again, "eval")[0]["loss"],
              tested[static_cast<size_t>(best - 1)]["loss"]);
  }
}

TEST(KeepBestTest, TheBestOneBeforeGoesWithTheOtherOldOnes) {
  const std::string folder = NewFolder("newest_is_best");
  const Events events =
      RunJobForEvents(Small("--max_steps=3 --eval_every=1 "
                            "--keep_best=loss --keep_last=1 --save_dir=" +
                            folder));
  ASSERT_EQ(events.back()["best"]["step"], 3);
  EXPECT_TRUE(fs::exists(SavedStep(folder, 3)));
  EXPECT_FALSE(fs::exists(SavedStep(folder, 1)));  // the best one until then
}

TEST(KeepBestTest, WhatIsCalledSoAndIsNoLinkStaysAndCostsNoTraining) {
  const std::string folder = NewFolder("mine");
  std::ofstream(folder + "/best") << "mine";
  ProgramResult said;
  RunJobForEvents(Unsteady(folder, "--keep_best=accuracy --max_steps=2"),
                  &said);
  EXPECT_THAT(said.out, HasSubstr("is no link to a checkpoint"));
  EXPECT_EQ(FileContents(folder + "/best"), "mine");
}

// Where nothing is learnt, the first evaluation is the best one.
constexpr char kStands[] =
    "--learning_rate=0 --eval_every=1 --early_stopping_patience=2 --epochs=2";

TEST(EarlyStoppingTest, EndsTheJobOnAllRanksAlike) {
  std::vector<std::string> layouts = Layouts();
  layouts.push_back("");
  for (const std::string& layout : layouts) {
    SCOPED_TRACE(layout);
    const std::string folder = NewFolder("stops");
    ProgramResult said;
    const Flags job = Reproducible(std::string(kStands) +
                                   " --save_every_epochs=0 "
                                   "--save_dir=" +
                                   folder + " " + layout);
    const Events events = RunJobForEvents(job, &said);
    EXPECT_THAT(StepsOf(EventsOf(events, "step")), ElementsAre(1, 2, 3));
    EXPECT_THAT(said.out,
                HasSubstr("training ends after step 3: 2 evaluations in a row "
                          "were no better than the one after step 1 "
                          "(--early_stopping_patience)"));
    EXPECT_EQ(events.back()["best"]["step"], 1);
    EXPECT_TRUE(fs::exists(SavedStep(folder, 3)));
    // There is nothing to go on with.
    RunJobForEvents(Joined(job, {"--resume=auto"}), &said);
    EXPECT_THAT(said.out, HasSubstr("nothing left to train: 2 evaluations"));
  }
}

TEST(EarlyStoppingTest, AtAnEpochsEndItSavesToo) {
  const std::string folder = NewFolder("epochs");
  const Events events = RunJobForEvents(
      Small("--learning_rate=0 --early_stopping_patience=1 --epochs=9 "
            "--save_every_epochs=0 --save_dir=" +
            folder));
  EXPECT_THAT(StepsAfter(EventsOf(events, "eval")), ElementsAre(6, 12));
  EXPECT_TRUE(fs::exists(SavedStep(folder, 12)));
}

// One that goes on knows what the evaluations before came to.
TEST(EarlyStoppingTest, AJobThatGoesOnCountsThoseBefore) {
  const std::string folder = NewFolder("goes_on");
  const Flags job = Reproducible(std::string(kStands) +
                                 " --resume=auto "
                                 "--save_every=1 --save_dir=" +
                                 folder);
  RunJobForEvents(Joined(job, {"--max_steps=2"}));
  const Events events =
      RunJobForEvents(Joined(job, {"--nproc_per_node=2", "--pipe=2"}));
  EXPECT_THAT(StepsOf(EventsOf(events, "step")), ElementsAre(3));
  EXPECT_EQ(events.back()["best"]["step"], 1);
  // From an earlier step, later ones do not count.
  const std::string earlier = SavedStep(folder, 1);
  const Events back = RunJobForEvents(
      Joined(job, {"--resume=" + earlier, "--save_dir=" + NewFolder("back")}));
  EXPECT_THAT(StepsOf(EventsOf(back, "step")), ElementsAre(2, 3));
}

TEST(EarlyStoppingTest, AHistoryOfAnotherMakerIsRefused) {
  const std::string folder = NewFolder("damaged");
  const Flags job = Reproducible(std::string(kStands) +
                                 " --resume=auto "
                                 "--save_every=1 --save_dir=" +
                                 folder);
  RunJobForEvents(Joined(job, {"--max_steps=2"}));
  std::ofstream(folder + "/evaluations.json") << "{\"step\":\n";
  ExpectRefused(job, {"Damaged", "", folder + "/evaluations.json: line 1"});
}

// An evaluation that a signal broke off is done again by the job that goes on.
TEST(EarlyStoppingTest, AnEvaluationThatWasBrokenOffIsDoneAgain) {
  const std::string folder = NewFolder("broken_off");
  const Flags job = Small(
      "--eval_every=2 --epochs=2 --resume=auto "
      "--keep_best=loss --save_every=1 --save_dir=" +
      folder);
  const Events straight =
      RunJobForEvents(Joined(job, {"--save_dir=" + NewFolder("straight")}));
  const ProgramResult failed =
      RunProgram(kTrain, job, FaultOf("point=evaluate:0,step=4,action=kill"));
  EXPECT_NE(failed.exit_code, 0);
  const Events on = RunJobForEvents(job);
  EXPECT_THAT(StepsAfter(EventsOf(on, "eval")), ElementsAre(4, 6, 8, 10, 12));
  EXPECT_EQ(on.back()["best"]["step"], straight.back()["best"]["step"]);
  EXPECT_EQ(on.back()["best"]["loss"], straight.back()["best"]["loss"]);
  EXPECT_EQ(Fingerprint(on), Fingerprint(straight));
}

// A text's tokens by a tokenizer that lies beside them.
std::string Tokenized(const std::string& name) {
  const std::string folder = NewFolder(name);
  std::ofstream text(folder + "/text.txt");
  for (int i = 0; i < 2000; ++i) text << "in the beginning was the word\n";
  text.close();
  const ProgramResult made = RunProgram(
      "tools/tokenize", {"--tokenizer=bytes", "--input=" + folder + "/text.txt",
                         "--output=" + folder + "/tokens", "--noend_of_text"});
  EXPECT_EQ(made.exit_code, 0) << made.err;
  return folder + "/tokens";
}

Flags Text(const std::string& data, const std::string& more) {
  return Joined(Words("--model=gpt_tiny --dataset=tokens --context=16 "
                      "--batch_size=16 --optimizer=adam --log_every=5 "
                      "--intra_op_threads=1 --save_dir= --max_steps=10 "
                      "--eval_batches=2 " +
                      more),
                {"--data_dir=" + data});
}

std::string SampleOf(const Events& events) {
  const Events samples = EventsOf(events, "sample");
  return samples.empty() ? "" : samples.back()["text"].get<std::string>();
}

// What follows "in the" by the model of a checkpoint.
ProgramResult Generated(const std::string& checkpoint) {
  return RunProgram(
      "tools/generate",
      {"--checkpoint=" + checkpoint, "--prompt=in the", "--temperature=0",
       "--max_new_tokens=12", "--intra_op_threads=1"});
}

TEST(TextTest, BytesAreTokensSoBitsAByteAreTheLossInBits) {
  const Events events = RunJobForEvents(Text(Tokenized("bits"), ""));
  const auto tested = EventsOf(events, "eval").back();
  EXPECT_EQ(tested["tokens"], 10 * 16 * 16);
  EXPECT_NEAR(tested["bits_per_byte"].get<double>(),
              tested["loss"].get<double>() / std::log(2.0), 1e-12);
  EXPECT_EQ(events.back()["test_bits_per_byte"], tested["bits_per_byte"]);
  EXPECT_NEAR(events.back()["test_perplexity"].get<double>(),
              std::exp(tested["loss"].get<double>()), 1e-9);
}

constexpr char kSamples[] =
    "--sample_every=5 --temperature=0 --max_new_tokens=12 --reproducible "
    "--microbatch_size=2 --learning_rate=0.01";

TEST(TextTest, SamplesAreTheSameInEveryLayoutAndAsGenerateMakesThem) {
  const std::string data = Tokenized("samples");
  const std::string saved = NewFolder("samples_saved");
  const Flags job =
      Joined(Text(data, kSamples), {"--prompt=in the", "--save_dir=" + saved});
  ProgramResult said;
  const Events events = RunJobForEvents(job, &said);
  const std::string sample = SampleOf(events);
  EXPECT_EQ(StepsAfter(EventsOf(events, "sample")), (std::vector<int>{5, 10}));
  EXPECT_EQ(sample.substr(0, 6), "in the");
  EXPECT_THAT(said.out, HasSubstr("step 10  sample:\n" + sample + "\n"));
  const ProgramResult made = Generated(saved);
  EXPECT_EQ(made.exit_code, 0) << made.err;
  EXPECT_EQ(made.out, sample + "\n");
  std::vector<std::string> layouts = Layouts();
  layouts.push_back("--nproc_per_node=2 --shard=optimizer");
  layouts.push_back("--loss_chunk=8");
  layouts.push_back("--nproc_per_node=2 --pipe=2 --vocab_parallel=2");
  for (const std::string& layout : layouts) {
    SCOPED_TRACE(layout);
    const Events other =
        RunJobForEvents(Joined(job, Words(layout), {"--save_dir="}));
    EXPECT_EQ(SampleOf(other), sample);
  }
}

// Sums have another order there, so that --reproducible is refused.
TEST(TextTest, SamplesAreTheSameWhereRanksShareLayersOrParameters) {
  const std::string data = Tokenized("shared_samples");
  const Flags job =
      Joined(Text(data,
                  "--sample_every=5 --temperature=0 --max_new_tokens=12 "
                  "--microbatch_size=2 --learning_rate=0.01"),
             {"--prompt=in the"});
  const std::string sample = SampleOf(RunJobForEvents(job));
  ASSERT_GT(sample.size(), std::string("in the").size());
  int layouts = 0;
  for (const char* layout :
       {"--nproc_per_node=2 --tensor=2",
        "--nproc_per_node=2 --shard=parameters",
        "--nproc_per_node=4 --tensor=2 --pipe=2",
        "--nproc_per_node=4 --pipe=2 --shard=parameters",
        "--nproc_per_node=4 --tensor=2 --shard=parameters"}) {
    SCOPED_TRACE(layout);
    const std::string saved = NewFolder(absl::StrCat("shared_saved", layouts));
    const Events events =
        RunJobForEvents(Joined(job, Words(layout), {"--save_dir=" + saved}));
    EXPECT_EQ(StepsAfter(EventsOf(events, "sample")),
              (std::vector<int>{5, 10}));
    EXPECT_EQ(SampleOf(events), sample);
    const ProgramResult made = Generated(saved);
    EXPECT_EQ(made.exit_code, 0) << made.err;
    EXPECT_EQ(made.out, sample + "\n");
    ++layouts;
  }
  std::cout << layouts << " layouts that share\n";
  EXPECT_EQ(layouts, 5);
}

TEST(TextTest, SamplesAreOfTheAverages) {
  const std::string data = Tokenized("averages");
  const std::string saved = NewFolder("averages_saved");
  const Flags job =
      Joined(Text(data, std::string(kSamples) + " --ema_decay=0.5"),
             {"--prompt=in the", "--save_dir=" + saved});
  const std::string sample = SampleOf(RunJobForEvents(job));
  EXPECT_EQ(Generated(saved).out, sample + "\n");
  EXPECT_EQ(SampleOf(RunJobForEvents(Joined(
                job, {"--nproc_per_node=2", "--pipe=2", "--save_dir="}))),
            sample);
}

class EvaluationRefusalTest : public testing::TestWithParam<RefusalRow> {};

TEST_P(EvaluationRefusalTest, NamesWhatDoesNotFit) {
  ExpectRefused(SmallJob(), GetParam());
}

INSTANTIATE_TEST_SUITE_P(
    All, EvaluationRefusalTest,
    testing::ValuesIn(std::vector<RefusalRow>{
        {"BestWithoutAFolder", "--keep_best=loss",
         "--keep_best=loss was given, but --save_dir is empty"},
        {"BestByAnotherValue", "--keep_best=bleu",
         "choose one of off, loss, accuracy"},
        {"SamplesOfImages", "--sample_every=1 --prompt=a",
         "--model=mlp_small is no GPT or Llama"},
        {"SamplesWithoutATokenizer",
         "--sample_every=1 --prompt=a --model=gpt_tiny "
         "--dataset=synthetic_tokens "
         "--synthetic_shape=8",
         "needs a tokenizer"},
        {"APromptForNothing", "--prompt=a", "is for --sample_every=STEPS"},
        {"NoPrompt", "--sample_every=1 --prompt=", "--prompt is empty"},
        {"Servers",
         "--nproc_per_node=3 --strategy=parameter_server --servers=1 "
         "--eval_every=2",
         "--eval_every=2 needs ranks that take their steps together"},
        {"ImagesOfNumbers",
         "--synthetic_shape=8 --misclassified_images=2 --tensorboard_dir=board",
         "--misclassified_images=2 shows images|--dataset=synthetic are [8]"},
        {"EvalOnly", "--eval_only --init_from=x --eval_every=2",
         "but --eval_only was given"}}),
    RowName<RefusalRow>);

}  // namespace
}  // namespace tandem::evaluation_test
