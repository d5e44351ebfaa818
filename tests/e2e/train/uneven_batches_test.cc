// --nodrop_last: the samples at an epoch's end are trained on, too.

#include <gtest/gtest.h>

#include <iostream>
#include <string>
#include <tuple>
#include <vector>

#include "tests/e2e/program.h"
#include "tests/e2e/train/pipeline_runs.h"
#include "tests/e2e/train/runs.h"

namespace tandem {
namespace {

Flags Job(const std::string& model, int samples, const Flags& more) {
  return Joined(
      TinyJob(model, {"--nodrop_last", "--batch_size=16",
                      "--synthetic_samples=" + std::to_string(samples)}),
      more);
}

Flags Reproducible(const std::string& model, int samples, const Flags& more) {
  return Job(model, samples,
             Joined({"--reproducible", "--microbatch_size=2"}, more));
}

const std::vector<Flags>& Layouts() {
  static const auto* const layouts = new std::vector<Flags>{
      {"--nproc_per_node=2"},
      {"--nproc_per_node=4"},
      {"--devices_per_rank=2"},
      {"--nproc_per_node=2", "--pipe=2", "--schedule=zb_h1"},
      {"--nproc_per_node=4", "--pipe=2"},
      {"--nproc_per_node=2", "--devices_per_rank=2", "--schedule=gpipe"},
  };
  return *layouts;
}

class LastStepTest
    : public testing::TestWithParam<std::tuple<const char*, int>> {};

TEST_P(LastStepTest, HasTheSameBitsInEveryLayout) {
  const auto& [model, samples] = GetParam();
  const Events one = RunJobForEvents(Reproducible(model, samples, {}));
  const Events steps = EventsOf(one, "step");
  ASSERT_EQ(steps.size(), 3u);
  int compared = 0;
  for (const Flags& layout : Layouts()) {
    SCOPED_TRACE(layout.back());
    const Events events = RunJobForEvents(Reproducible(model, samples, layout));
    EXPECT_EQ(Fingerprint(events), Fingerprint(one));
    const Events its = EventsOf(events, "step");
    ASSERT_EQ(its.size(), 3u);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(its[i]["loss"], steps[i]["loss"]) << i;
    }
    ++compared;
  }
  std::cout << compared << " runs compared with one device's\n";
  EXPECT_EQ(compared, 6);
}

// One sample left, a prime number, all but one.
INSTANTIATE_TEST_SUITE_P(All, LastStepTest,
                         testing::Combine(testing::Values("mlp_dropout",
                                                          "gpt_tiny_tied"),
                                          testing::Values(33, 45, 47)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)) + "_" +
                                  std::to_string(std::get<1>(info.param));
                         });

// Two and one samples, or one and none, in the last step.
TEST(UnevenBatchesTest, JoinedReplicasTrainOnEachSampleOnce) {
  for (const int samples : {33, 35}) {
    for (const Flags& layout : std::vector<Flags>{
             {"--nproc_per_node=2"},
             {"--nproc_per_node=2", "--gradient_accumulation_steps=4"},
             {"--strategy=hybrid", "--nproc_per_node=2",
              "--devices_per_rank=2"},
             {"--strategy=hybrid", "--nproc_per_node=4", "--pipe=2",
              "--microbatches=8"}}) {
      SCOPED_TRACE(layout.back());
      const Events events =
          RunJobForEvents(Joined(Job("mlp_small", samples, layout),
                                 {"--uneven_inputs=join", "--epochs=2"}));
      const Events steps = EventsOf(events, "step");
      ASSERT_EQ(steps.size(), 6u);
      EXPECT_FALSE(Fingerprint(events).empty());
    }
  }
}

// Fewer samples than ranks, in the whole set or in what a resumed epoch has
// left: some replicas have none at all.
TEST(UnevenBatchesTest, JoinedReplicasMayHaveNoSamplesAndGoOn) {
  int cells = 0;
  for (const int samples : {1, 3, 7, 65}) {
    for (const Flags& layout : std::vector<Flags>{
             {"--nproc_per_node=2"},
             {"--nproc_per_node=4"},
             {"--strategy=hybrid", "--nproc_per_node=2",
              "--devices_per_rank=2"},
             {"--strategy=hybrid", "--nproc_per_node=4", "--pipe=2"}}) {
      SCOPED_TRACE(std::to_string(samples) + " " + layout.back());
      const std::string folder = NewFolder("join");
      const Flags job =
          Joined(Job("mlp_small", samples, layout),
                 {"--uneven_inputs=join", "--epochs=2", "--timeout=60"});
      const Events straight = RunJobForEvents(
          Joined(job, {"--save_dir=" + folder, "--save_every=1"}));
      const int steps = (samples + 15) / 16;
      ASSERT_EQ(EventsOf(straight, "step").size(), 2u * steps);
      // Before the last step of the first epoch.
      if (steps > 1) {
        const Events rest = RunJobForEvents(
            Joined(job, {"--resume=" + folder + "/step-00000000" +
                         std::to_string(steps - 1)}));
        EXPECT_EQ(Fingerprint(rest), Fingerprint(straight));
      }
      ++cells;
    }
  }
  std::cout << cells << " cells\n";
  EXPECT_EQ(cells, 16);
}

TEST(UnevenBatchesTest, EveryStrategyTakesTheLastSamples) {
  for (const Flags& layout : std::vector<Flags>{
           {},
           {"--nproc_per_node=3", "--batch_size=18"},
           {"--nproc_per_node=2", "--gradient_accumulation_steps=4"},
           {"--devices_per_rank=2"},
           {"--strategy=pipeline", "--devices_per_rank=2",
            "--microbatch_size=3"},
           {"--strategy=hybrid", "--nproc_per_node=2", "--devices_per_rank=2"},
           {"--strategy=hybrid", "--nproc_per_node=4", "--pipe=2",
            "--microbatches=8"}}) {
    const Events events = RunJobForEvents(Job("mlp_small", 37, layout));
    const Events steps = EventsOf(events, "step");
    EXPECT_EQ(steps.size(), 3u);
    EXPECT_EQ(events.front()["drop_last"], false);
    const Events dropping =
        RunJobForEvents(Joined(Job("mlp_small", 37, layout), {"--drop_last"}));
    EXPECT_EQ(EventsOf(dropping, "step").size(), 2u);
    EXPECT_NE(Fingerprint(events), Fingerprint(dropping));
  }
}

// Ranks share the rest of an epoch as they share an epoch, over several.
TEST(UnevenBatchesTest, ACheckpointOfOneLayoutGoesOnInAnother) {
  const std::string folder = NewFolder("uneven");
  const Flags job = Reproducible("mlp_dropout", 45, {"--epochs=2"});
  const Events straight = RunJobForEvents(Joined(
      job, {"--nproc_per_node=4", "--save_dir=" + folder, "--save_every=1"}));
  ASSERT_EQ(EventsOf(straight, "step").size(), 6u);
  for (const int step : {2, 3, 5}) {
    for (const Flags& layout : Layouts()) {
      const Events events = RunJobForEvents(Joined(
          Joined(job, layout),
          {"--resume=" + folder + "/step-00000000" + std::to_string(step)}));
      EXPECT_EQ(Fingerprint(events), Fingerprint(straight))
          << step << ", " << layout.back();
    }
  }
}

}  // namespace
}  // namespace tandem
