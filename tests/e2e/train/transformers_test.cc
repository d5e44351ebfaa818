// Llamas and their kin: sizes by name and by flags, and the loss in chunks of
// tokens, which is the plain loss in every layout.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/e2e/program.h"
#include "tests/e2e/train/pipeline_runs.h"
#include "tests/e2e/train/runs.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

Flags Job(const std::string& model, const Flags& more) {
  const Flags job = {"--model=" + model, "--dataset=synthetic_tokens",
                     "--context=16",     "--synthetic_samples=48",
                     "--batch_size=16",  "--optimizer=adam",
                     "--max_steps=3",    "--save_dir=",
                     "--log_every=1"};
  return Joined(Joined(job, TestBackendFlags()), more);
}

TEST(TransformersTest, TheLossInChunksIsThePlainOne) {
  for (const char* model : {"llama_tiny", "llama_tiny_tied", "gpt_tiny_tied"}) {
    const Events plain = RunJobForEvents(Job(model, {}));
    const Events chunked = RunJobForEvents(Job(model, {"--loss_chunk=100"}));
    ASSERT_EQ(EventsOf(plain, "step").size(), 3u);
    ASSERT_EQ(EventsOf(plain, "eval").size(), 1u);
    ExpectSameLosses(chunked, plain, 1e-5, model);
  }
}

TEST(TransformersTest, TheLossInChunksHasTheSameBitsInEveryLayout) {
  const Flags job = Job("llama_tiny_tied", {"--loss_chunk=24", "--reproducible",
                                            "--microbatch_size=4"});
  const std::string one = Fingerprint(RunJobForEvents(job));
  for (const Flags& layout : std::vector<Flags>{
           {"--nproc_per_node=2"}, {"--nproc_per_node=2", "--pipe=2"}}) {
    EXPECT_EQ(Fingerprint(RunJobForEvents(Joined(job, layout))), one);
  }
}

TEST(TransformersTest, TheLossInChunksIsThePlainOneInLayoutsThatAreNotEqual) {
  const Events plain = RunJobForEvents(Job("llama_tiny", {}));
  for (const Flags& layout :
       std::vector<Flags>{{"--nproc_per_node=2"},
                          {"--devices_per_rank=2"},
                          {"--devices_per_rank=2", "--strategy=pipeline",
                           "--microbatches=4", "--schedule=zb_h1"},
                          {"--checkpoint_every=2"}}) {
    ExpectSameLosses(RunJobForEvents(Joined(
                         Job("llama_tiny", {"--loss_chunk=100"}), layout)),
                     plain, 1e-4, layout.back());
  }
}

TEST(TransformersTest, SizesByFlagsTakeThePlaceOfTheNamedOnes) {
  const Flags sizes = {"--layers=1", "--width=32", "--heads=4", "--kv_heads=1",
                       "--ffn_width=48"};
  const Events steps =
      EventsOf(RunJobForEvents(Joined(Job("llama_tiny", {}), sizes)), "step");
  ASSERT_EQ(steps.size(), 3u);
  EXPECT_NEAR(steps[0]["loss"], 5.55, 0.1);  // the logarithm of 256
}

TEST(TransformersTest, WhatDoesNotFitIsRefused) {
  struct Refusal {
    Flags flags;
    std::string message;
  };
  for (const Refusal& refusal : std::vector<Refusal>{
           {Job("gpt_tiny", {"--kv_heads=2"}), "gpt_tiny has no kv_heads"},
           {Job("llama_tiny", {"--kv_heads=3"}), "4 heads and 3 kv_heads"},
           {Job("llama_tiny", {"--loss_chunk=8", "--z_loss=1e-4"}),
            "leave one out"},
           {Job("llama_tiny", {"--loss_chunk=8", "--devices_per_rank=2",
                               "--strategy=data_parallel"}),
            "use --strategy=ddp"},
           {{"--model=cnn", "--loss_chunk=8", "--save_dir="},
            "is for GPTs and Llamas"},
           {Job("llama_tiny", {"--dropout=0.1"}), "takes no dropout"},
           {{"--model=cnn", "--layers=8", "--save_dir="},
            "model cnn is of one size"}}) {
    const ProgramResult result = RunProgram(kTrain, refusal.flags);
    EXPECT_NE(result.exit_code, 0);
    EXPECT_THAT(result.err, HasSubstr(refusal.message));
  }
}

// Draws are a function of the sample, whoever computes it and however often.
TEST(TransformersTest, DropoutDropsTheSameInEveryLayout) {
  const Flags job = Job("gpt_tiny", {"--dropout=0.2", "--reproducible",
                                     "--microbatch_size=2", "--max_steps=2"});
  const std::string one = Fingerprint(RunJobForEvents(job));
  EXPECT_NE(Fingerprint(RunJobForEvents(Joined(job, {"--dropout=0"}))), one);
  for (const Flags& layout : std::vector<Flags>{
           {"--nproc_per_node=2", "--checkpoint_every=2"},
           {"--nproc_per_node=2", "--pipe=2", "--schedule=zb_h1"}}) {
    EXPECT_EQ(Fingerprint(RunJobForEvents(Joined(job, layout))), one);
  }
}

}  // namespace
}  // namespace tandem
