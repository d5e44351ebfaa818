// --vocab_parallel: the plain loss in every layout, and checkpoints that know
// nothing of it.

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

// Four steps an epoch.
Flags Job(const Flags& more = {}) {
  const Flags job = {"--model=gpt_tiny_tied",
                     "--dataset=synthetic_tokens",
                     "--context=8",
                     "--synthetic_samples=32",
                     "--batch_size=8",
                     "--optimizer=adamw",
                     "--reproducible",
                     "--microbatch_size=4",
                     "--epochs=1",
                     "--save_dir=",
                     "--log_every=1"};
  return Joined(Joined(job, TestBackendFlags()), more);
}

// Parts on two ranks, and all of them on each device of two replicas, which
// share the optimizer's state.
const std::vector<Flags>& Layouts() {
  static const auto* const layouts = new std::vector<Flags>{
      {"--vocab_parallel=2", "--nproc_per_node=2", "--pipe=2",
       "--schedule=zb_h1"},
      {"--vocab_parallel=2", "--nproc_per_node=2", "--shard_optimizer=on"}};
  return *layouts;
}

TEST(VocabParallelTest, IsThePlainLossWithTheBitsOfOneDevice) {
  const Events plain = RunJobForEvents(Job());
  const Events one = RunJobForEvents(Job({"--vocab_parallel=2"}));
  ExpectSameLosses(one, plain, 1e-5, "one device");
  for (const Flags& layout : Layouts()) {
    EXPECT_EQ(Fingerprint(RunJobForEvents(Job(layout))), Fingerprint(one))
        << layout[2];
  }
}

// Whichever of the tied weight's names the pattern has, and in parts, too.
TEST(VocabParallelTest, TheSameParametersDecay) {
  const auto trained = [](const std::string& pattern, const Flags& parts = {}) {
    return RunJobForEvents(Job(Joined(
        {"--weight_decay=0.5", "--no_weight_decay_on=" + pattern}, parts)));
  };
  const auto exempt = [](const Events& events) -> std::string {
    return EventsOf(events, "settings").front()["exempt_from_decay"];
  };
  const Events plain = trained("wte.weight$");
  EXPECT_THAT(exempt(plain), HasSubstr("1 of "));
  const Events by_alias = trained("lm_head.weight$");
  EXPECT_EQ(Fingerprint(by_alias), Fingerprint(plain));
  for (const char* pattern : {"wte.weight$", "lm_head.weight$"}) {
    const Events parts = trained(pattern, {"--vocab_parallel=2"});
    EXPECT_EQ(exempt(parts), exempt(plain)) << pattern;
    ExpectSameLosses(parts, plain, 1e-5, pattern);
  }
}

// The checkpoint of step 3 goes on with the vocabulary in parts, or not.
TEST(VocabParallelTest, ACheckpointKnowsTheWholeWeight) {
  const Events plain = RunJobForEvents(Job());
  std::vector<Flags> from = Layouts();
  from.push_back({"--vocab_parallel=3"});
  from.push_back({});
  for (const Flags& layout : from) {
    const std::string folder = NewFolder("parts");
    const std::string resume = "--resume=" + folder + "/step-000000003";
    const Events saved = RunJobForEvents(Job(Joined(
        layout, {"--save_dir=" + folder, "--save_every=3", "--max_steps=3"})));
    for (const char* parts :
         {"--vocab_parallel=1", "--vocab_parallel=2", "--vocab_parallel=5"}) {
      SCOPED_TRACE(testing::Message()
                   << testing::PrintToString(layout) << " to " << parts);
      const Events same = RunJobForEvents(Job({"--eval_only", resume, parts}));
      EXPECT_EQ(Fingerprint(same), Fingerprint(saved));
      if (parts[17] == '5') continue;
      const Events on = RunJobForEvents(Job({resume, parts}));
      const Events steps = EventsOf(on, "step");
      ASSERT_EQ(steps.size(), 1u);
      EXPECT_NEAR(steps[0]["loss"].get<double>(),
                  EventsOf(plain, "step")[3]["loss"].get<double>(), 1e-4);
    }
  }
}

TEST(VocabParallelTest, WhatDoesNotFitIsRefused) {
  struct Refusal {
    Flags flags;
    std::string message;
  };
  for (const Refusal& refusal : std::vector<Refusal>{
           {Job({"--vocab_parallel=2", "--z_loss=1e-4"}), "leave one out"},
           {Job({"--vocab_parallel=2", "--devices_per_rank=2",
                 "--strategy=data_parallel", "--reproducible=false",
                 "--microbatch_size=0"}),
            "not --strategy=data_parallel"},
           {Job({"--vocab_parallel=300"}), "has 256 rows to divide into 300"},
           {{"--model=cnn", "--vocab_parallel=2", "--save_dir="},
            "is for GPTs and Llamas"}}) {
    const ProgramResult result = RunProgram(kTrain, refusal.flags);
    EXPECT_NE(result.exit_code, 0);
    EXPECT_THAT(result.err, HasSubstr(refusal.message));
  }
}

}  // namespace
}  // namespace tandem
