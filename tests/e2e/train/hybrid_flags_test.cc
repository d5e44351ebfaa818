// Flags that mean the same for every strategy, under those that cut a batch.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/e2e/program.h"
#include "tests/e2e/train/pipeline_runs.h"
#include "tests/e2e/train/runs.h"

namespace tandem {
namespace {

const std::vector<Flags>& Layouts() {
  static const auto* const layouts = new std::vector<Flags>{
      {"--nproc_per_node=2"},
      {"--strategy=pipeline", "--devices_per_rank=2"},
      {"--strategy=pipeline", "--nproc_per_node=2", "--pipe=2",
       "--checkpoint_activations=always"},
      {"--strategy=hybrid", "--nproc_per_node=2", "--devices_per_rank=2",
       "--schedule=zb_h1"},
      {"--strategy=hybrid", "--nproc_per_node=4", "--pipe=2"},
  };
  return *layouts;
}

// --z_loss is a second term of the loss.
TEST(HybridFlagsTest, AFurtherLossIsTrainedAndReportedByName) {
  const Flags job = TinyJob("mlp_small", {"--z_loss=0.01"});
  const Events one = RunJobForEvents(job);
  const Events steps = EventsOf(one, "step");
  ASSERT_EQ(steps.size(), static_cast<size_t>(kTinySteps));
  const Events without = RunJobForEvents(TinyJob("mlp_small"));
  EXPECT_NE(Fingerprint(one), Fingerprint(without));
  // The loss beside it is what it is without, before it has moved a weight.
  EXPECT_EQ(EventsOf(without, "step")[0]["loss"], steps[0]["loss"]);
  EXPECT_FALSE(EventsOf(without, "step")[0].contains("auxiliary_losses"));
  for (const Flags& layout : Layouts()) {
    SCOPED_TRACE(layout.back());
    const Events its = EventsOf(RunJobForEvents(Joined(job, layout)), "step");
    ASSERT_EQ(its.size(), steps.size());
    const double found = its[0]["auxiliary_losses"]["z_loss"];
    const double expected = steps[0]["auxiliary_losses"]["z_loss"];
    EXPECT_GT(expected, 0.005);  // of ten classes, log(10)^2 / 100 about
    EXPECT_NEAR(found, expected, 1e-4 * expected);
  }
}

TEST(HybridFlagsTest, AFurtherLossIsReproducible) {
  const Flags job = TinyJob(
      "mlp_dropout", {"--z_loss=0.01", "--reproducible", "--microbatch_size=2",
                      "--batch_size=16", "--synthetic_samples=64"});
  const Events one = RunJobForEvents(job);
  for (const Flags& layout :
       std::vector<Flags>{{"--nproc_per_node=2", "--pipe=2"},
                          {"--nproc_per_node=4", "--pipe=2"},
                          {"--nproc_per_node=2", "--devices_per_rank=2"}}) {
    SCOPED_TRACE(layout.back());
    const Events events = RunJobForEvents(Joined(job, layout));
    EXPECT_EQ(Fingerprint(events), Fingerprint(one));
    const Events steps = EventsOf(one, "step");
    const Events its = EventsOf(events, "step");
    ASSERT_EQ(its.size(), steps.size());
    for (size_t i = 0; i < steps.size(); ++i) {
      EXPECT_EQ(its[i]["auxiliary_losses"], steps[i]["auxiliary_losses"]) << i;
    }
  }
}

// Whatever the strategy: one device, replicas, a model in parts, pipelines.
TEST(HybridFlagsTest, CheckpointedLayersChangeNoBit) {
  std::vector<Flags> layouts = Layouts();
  layouts.push_back({"--strategy=single"});
  layouts.push_back({"--strategy=model_parallel", "--devices_per_rank=2"});
  for (const Flags& layout : layouts) {
    SCOPED_TRACE(layout.back());
    const Flags job = TinyJob("gpt_tiny_tied", layout);
    const std::string plain = Fingerprint(RunJobForEvents(job));
    for (const Flags& flags : std::vector<Flags>{
             {"--checkpoint_layers=h\\.[02]$"}, {"--checkpoint_every=2"}}) {
      EXPECT_EQ(Fingerprint(RunJobForEvents(Joined(job, flags))), plain)
          << flags[0];
    }
  }
}

// Where every parameter is used, looking for others changes nothing.
// tests/parallel/strategy/unused_parameters_test.cc has some that are not.
TEST(HybridFlagsTest, FindUnusedParametersChangesNoBit) {
  for (const Flags& layout : std::vector<Flags>{
           {"--strategy=hybrid", "--nproc_per_node=2"},
           {"--strategy=hybrid", "--nproc_per_node=2", "--devices_per_rank=2",
            "--schedule=zb_h1"},
           {"--reproducible", "--microbatch_size=2", "--nproc_per_node=2"}}) {
    const Flags job = TinyJob("gpt_tiny_tied", layout);
    const Events events =
        RunJobForEvents(Joined(job, {"--find_unused_parameters"}));
    EXPECT_EQ(Fingerprint(events), Fingerprint(RunJobForEvents(job)))
        << layout.back();
  }
}

// Of 16 samples two replicas have 8 each, in microbatches of 4, of which relu1
// keeps 64 numbers each.
TEST(HybridFlagsTest, ProfilesAReplicasMicrobatch) {
  Program program(kTrain, TinyJob("mlp_small",
                                  {"--batch_size=16", "--strategy=hybrid",
                                   "--nproc_per_node=2", "--devices_per_rank=2",
                                   "--microbatches=2", "--balance=profile"}));
  const ProgramResult result = program.Wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out,
              testing::ContainsRegex("relu1 [^\n]* 0 B +1 KiB +[01]\n"));
}

// With --loss_chunk the head's products are the loss's.
TEST(HybridFlagsTest, ProfilesALossThatTakesAWeight) {
  const Flags layout = {"--dataset=synthetic_tokens",
                        "--synthetic_shape=8",
                        "--batch_size=16",
                        "--strategy=pipeline",
                        "--devices_per_rank=2",
                        "--microbatches=2",
                        "--loss_chunk=8",
                        "--balance=profile"};
  for (const char* model : {"gpt_tiny", "gpt_tiny_tied"}) {
    const ProgramResult result = RunProgram(kTrain, TinyJob(model, layout));
    EXPECT_EQ(result.exit_code, 0) << model << result.err;
    EXPECT_THAT(result.out, testing::ContainsRegex("lm_head [^\n]* +1\n"))
        << model;
  }
}

}  // namespace
}  // namespace tandem
