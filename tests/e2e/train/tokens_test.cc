// A text from token files: learnt, in every layout alike, and gone on with in
// the middle.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "tests/e2e/program.h"
#include "tests/e2e/train/job_table.h"
#include "tests/e2e/train/runs.h"

namespace tandem::tokens_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Flags Job(const std::string& folder, const Flags& more) {
  return Joined(Words("--model=gpt_tiny --dataset=tokens --context=16 "
                      "--vocabulary=256 --batch_size=16 --optimizer=adam "
                      "--save_dir= --log_every=1 --data_dir=" +
                      folder),
                more);
}

TEST(TokensTest, ATextIsLearnt) {
  const Events events =
      RunJobForEvents(Job(NewText("learnt"), {"--max_steps=30"}));
  const Events steps = EventsOf(events, "step");
  ASSERT_EQ(steps.size(), 30u);
  EXPECT_GT(steps.front()["loss"], 4.0);  // of 256 tokens that are as likely
  EXPECT_LT(steps.back()["loss"], 2.7);
  const Events tested = EventsOf(events, "eval");
  ASSERT_EQ(tested.size(), 1u);
  EXPECT_LT(tested[0]["loss"], 2.7);
  EXPECT_EQ(tested[0]["count"].get<int64_t>() % 16, 0);
}

// 8 samples of 8 tokens, in microbatches of 2, whoever shares them.
TEST(TokensTest, ABudgetOfTokensIsABatchAndItsAccumulation) {
  const Flags job = Tiny("gpt_tiny_tied");
  const std::string budget =
      "--batch_size= --tokens_per_step=64 --microbatch_size=2";
  const auto same = [&](const std::string& place, const std::string& by_hand) {
    ExpectSame({place, job, {budget}, SameBits, {place}, by_hand});
  };
  same("", "--gradient_accumulation_steps=4");
  same("--nproc_per_node=2", "--gradient_accumulation_steps=2");
  same("--nproc_per_node=3 --strategy=parameter_server",
       "--gradient_accumulation_steps=2");
  same("--nproc_per_node=2 --pipe=2", "--microbatch_size=2");
  const Events events = RunOnce(Joined(job, Words(budget))).events;
  EXPECT_EQ(events.front()["batch_size"], 8);
  EXPECT_EQ(events.front()["tokens_per_step"], 64);
  const auto planned = [&](const std::string& place) {
    return RunProgram(kTrain,
                      Joined(job, Words(budget + " --dry_run" + place)));
  };
  EXPECT_THAT(planned("").out,
              HasSubstr("8 samples (64 tokens) a step, 8 of them a replica's, "
                        "in 4 microbatches of at most 2"));
  EXPECT_THAT(planned(" --nproc_per_node=3").err,
              HasSubstr("--tokens_per_step=64 does not divide by the 8 tokens "
                        "of a sample on each of 3 replicas: take 48 or 72"));
}

// There are as many sequences at a time as in training: some 60 are four times
// 16.
TEST(TokensTest, EvaluationTakesBatchesOfTheTrainingsSize) {
  const Flags job = Job(NewText("evaluated"), {"--max_steps=1"});
  const ProgramOptions fault = FaultOf("point=evaluate:2,action=fail");
  const ProgramResult failed = RunProgram(kTrain, job, fault);
  EXPECT_NE(failed.exit_code, 0);
  EXPECT_THAT(failed.err, HasSubstr("evaluate:2"));
  const ProgramResult at_once =
      RunProgram(kTrain, Joined(job, {"--eval_batch_size=256"}), fault);
  EXPECT_EQ(at_once.exit_code, 0) << at_once.err;
}

// From a text to a loss, with no flag that says the vocabulary.
TEST(TokensTest, ATextIsTokenizedAndLearnt) {
  const std::string folder = NewFolder("tokenized");
  std::ofstream text(folder + "/text.txt");
  for (int i = 0; i < 2000; ++i) text << "in the beginning was word\n";
  text.close();
  const ProgramResult tokenized = RunProgram(
      "tools/tokenize", {"--tokenizer=bytes", "--input=" + folder + "/text.txt",
                         "--output=" + folder + "/tokens", "--noend_of_text"});
  ASSERT_EQ(tokenized.exit_code, 0) << tokenized.err;
  EXPECT_THAT(tokenized.out, HasSubstr("vocabulary 256"));
  const Events events = RunJobForEvents(
      Job(folder + "/tokens", {"--vocabulary=0", "--max_steps=10"}));
  const Events steps = EventsOf(events, "step");
  ASSERT_EQ(steps.size(), 10u);
  EXPECT_LT(steps.back()["loss"], steps.front()["loss"]);
  ASSERT_EQ(EventsOf(events, "eval").size(), 1u);
}

// Nothing is held out, and so nothing is evaluated.
TEST(TokensTest, WithoutATestSetAJobTrainsAndEvaluatesNothing) {
  const std::string folder = NewFolder("no_test_set");
  std::ofstream text(folder + "/text.txt");
  for (int i = 0; i < 500; ++i) text << "in the beginning was word\r\n";
  text.close();
  const std::string data = folder + "/tokens";
  const ProgramResult tokenized = RunProgram(
      "tools/tokenize",
      {"--tokenizer=bytes", "--input=" + folder + "/text.txt",
       "--output=" + data, "--noend_of_text", "--validation_fraction=0"});
  ASSERT_EQ(tokenized.exit_code, 0) << tokenized.err;
  EXPECT_THAT(tokenized.out, HasSubstr("val.bin    0 tokens"));
  const std::string saved = folder + "/saved";
  const Flags job = Job(data, {"--vocabulary=0", "--max_steps=3"});
  for (const Flags& layout : std::vector<Flags>{
           {"--save_dir=" + saved},
           {"--nproc_per_node=2"},
           {"--nproc_per_node=2", "--pipe=2", "--document_masks"}}) {
    ProgramResult said;
    const Events events = RunJobForEvents(Joined(job, layout), &said);
    EXPECT_EQ(EventsOf(events, "step").size(), 3u);
    EXPECT_TRUE(EventsOf(events, "eval").empty());
    EXPECT_FALSE(events.back().contains("test_accuracy"));
    EXPECT_THAT(said.out, HasSubstr("the test set is empty"));
    EXPECT_THAT(said.out, Not(HasSubstr("test accuracy")));
  }
  const Events done = RunJobForEvents(Joined(job, {"--resume=" + saved}));
  EXPECT_TRUE(EventsOf(done, "eval").empty());
  ExpectRefused(job, {"Evaluation", "--eval_only --resume=" + saved,
                      "is empty: there is nothing to evaluate"});
  const ProgramResult rehearsed =
      RunProgram(kTrain, Joined(job, {"--device=sim", "--fake_weights"}));
  EXPECT_EQ(rehearsed.exit_code, 0) << rehearsed.err;
}

// An epoch is not gone on with on other samples.
TEST(TokensTest, AnEpochGoesOnWithTheDataThatItWasBegunWith) {
  const std::string folder = NewText("same_data");
  const std::string saved = NewFolder("same_data_saved");
  const Flags job = Job(folder, {"--max_steps=2"});
  RunJobForEvents(Joined(job, {"--save_dir=" + saved}));
  const std::string moved = NewText("moved");  // the same text
  const std::string another = NewFolder("another_text");
  WriteText(another + "/train.bin", 2000, 1);
  WriteText(another + "/val.bin", 200, 2);
  std::fstream file(another + "/train.bin",
                    std::ios::in | std::ios::out | std::ios::binary);
  file.put('z');
  file.close();
  const std::string longer = NewFolder("longer");
  WriteText(longer + "/train.bin", 6000, 1);
  WriteText(longer + "/val.bin", 200, 2);
  const Flags on = Joined(job, {"--resume=" + saved, "--max_steps=4"});
  for (const RefusalRow& row : std::vector<RefusalRow>{
           {"Context", "--context=8", "sample_shape 16 there, 8 here"},
           {"Longer", "--data_dir=" + longer, "training_samples "},
           {"AnotherText", "--data_dir=" + another,
            "another training set (data_digest "}}) {
    const ProgramResult result = ExpectRefused(on, row);
    EXPECT_THAT(result.err, HasSubstr("in the midst of epoch 1 of "));
  }
  ProgramResult said;
  const Events events = RunJobForEvents(
      Joined(on, {"--data_dir=" + moved, "--nodrop_last"}), &said);
  EXPECT_EQ(EventsOf(events, "step").size(), 2u);
  EXPECT_THAT(said.out, HasSubstr("note: other settings than those of the "
                                  "checkpoint: --drop_last=false (true then)"));
}

TEST(TokensTest, NumbersOf4BytesAreTakenWhereTheyAreSaid) {
  const std::string folder = NewText("wide");
  for (const char* name : {"/train.bin", "/val.bin"}) {
    const std::string bytes = FileContents(folder + name);
    std::string wide;
    for (size_t i = 0; i < bytes.size(); i += 2) {
      wide += bytes.substr(i, 2) + std::string(2, '\0');
    }
    std::ofstream(folder + name, std::ios::binary) << wide;
  }
  const Flags job = Job(folder, {"--max_steps=3"});
  ExpectRefused(job, {"Bytes", "", "give token_bytes 4"});
  EXPECT_EQ(
      Fingerprint(RunJobForEvents(Joined(job, {"--token_bytes=4"}))),
      Fingerprint(RunJobForEvents(Job(NewText("narrow"), {"--max_steps=3"}))));
}

TEST(TokensTest, AnotherLayoutHasTheSameBits) {
  ExpectSame({"Tokens",
              Job(NewText("layouts"), Words("--max_steps=3 --reproducible "
                                            "--microbatch_size=4")),
              {"--nproc_per_node=2", "--nproc_per_node=2 --pipe=2"}});
}

TEST(TokensTest, AJobGoesOnInTheMiddleOnAnotherNumberOfRanks) {
  ExpectGoesOn({"Tokens",
                Job(NewText("resumed"), Words("--max_steps=4 --reproducible "
                                              "--microbatch_size=4")),
                {""},
                "--save_every=2",
                {2},
                {"--nproc_per_node=2"},
                /*saver_is_straight=*/true});
}

// Each word a document, which its space ends: what comes after its first letter
// follows from it, but for "w", which begins two.
Flags WordsJob(const std::string& folder, const Flags& more) {
  return Joined(
      Job(folder, {"--context=48", "--document_masks", "--end_of_text=32"}),
      more);
}

TEST(TokensTest, DocumentsAreLearntEachByItself) {
  const std::string folder = NewText("documents");
  const auto last_loss = [](const Events& events) {
    return EventsOf(events, "eval").back()["loss"].get<double>();
  };
  const Events apart = RunJobForEvents(WordsJob(folder, {"--max_steps=40"}));
  const Events mixed =
      RunJobForEvents(Job(folder, {"--context=48", "--max_steps=40"}));
  // A fifth of the letters begin a word, and none can tell which.
  EXPECT_LT(last_loss(apart) + 0.1, last_loss(mixed));
  const int64_t scored = EventsOf(apart, "eval").back()["count"];
  EXPECT_LT(scored, EventsOf(mixed, "eval").back()["count"].get<int64_t>());
}

// Workers have other numbers of targets in each step.
TEST(TokensTest, DocumentsHaveTheBitsOfDdpOnAParameterServer) {
  ExpectSame({"Documents",
              WordsJob(NewText("served_documents"),
                       {"--max_steps=3", "--intra_op_threads=1"}),
              {"--strategy=parameter_server --nproc_per_node=3 --servers=1"},
              SameBits,
              {""},
              "--nproc_per_node=2"});
}

TEST(TokensTest, DocumentsHaveTheSameBitsInEveryLayout) {
  const Flags job =
      WordsJob(NewText("document_layouts"),
               Words("--max_steps=3 --reproducible --microbatch_size=4"));
  ExpectSame(
      {"Documents",
       job,
       {"--nproc_per_node=2", "--nproc_per_node=2 --pipe=2 --schedule=zb_h1",
        "--nproc_per_node=2 --devices_per_rank=2 "
        "--checkpoint_activations=always"},
       SameBits,
       {"--model=gpt_tiny", "--model=llama_tiny"}});
}

// Replicas weigh by the targets that count, and a mask does what the CPU does
// document by document.
TEST(TokensTest, DocumentsHaveOneMeanOverRanks) {
  ExpectSame({"Documents",
              WordsJob(NewText("document_ranks"),
                       Words("--model=llama_tiny --max_steps=3 "
                             "--loss_chunk=100")),
              {"--nproc_per_node=2", "--devices_per_rank=2 --device=sim"},
              SameLosses(1e-4)});
}

TEST(TokensTest, WhatCannotBeTrainedOnIsRefused) {
  const Flags job = Job(NewText("refused"), {"--max_steps=1"});
  for (const RefusalRow& row : std::vector<RefusalRow>{
           {"NoFolder", "--data_dir=", "need a data_dir", kAnyFailure},
           {"EmptyFolder", "--data_dir=" + NewFolder("empty"), "train.bin",
            kAnyFailure},
           {"LongSamples", "--context=100000",
            "a sample of context 100000 needs 100001", kAnyFailure},
           {"SmallVocabulary", "--vocabulary=100", "but the vocabulary has 100",
            kAnyFailure},
           {"NoVocabulary", "--vocabulary=0", "from a vocabulary of up to 256",
            kAnyFailure},
           {"NoEndOfText", "--document_masks", "give the end_of_text",
            kAnyFailure},
           {"EndOfTextOfAnother", "--document_masks --end_of_text=256",
            "none of the 256", kAnyFailure}}) {
    ExpectRefused(job, row);
  }
}

}  // namespace
}  // namespace tandem::tokens_test
