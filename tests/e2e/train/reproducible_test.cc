// --reproducible: the same losses and weights, bit for bit, in every layout of
// data x pipe and under every schedule.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>
#include <set>
#include <string>
#include <vector>

#include "tests/e2e/program.h"
#include "tests/e2e/train/pipeline_runs.h"
#include "tests/e2e/train/runs.h"

namespace tandem {
namespace {

struct Layout {
  int ranks;
  int pipe;
  int devices;

  int replicas() const { return ranks / pipe; }
  Flags flags() const {
    Flags flags = {"--pipe=" + std::to_string(pipe),
                   "--devices_per_rank=" + std::to_string(devices)};
    if (ranks > 1) {
      flags.push_back("--nproc_per_node=" + std::to_string(ranks));
    }
    return flags;
  }
  std::string name() const {
    return std::to_string(ranks) + " ranks, " + std::to_string(pipe) +
           " of them a replica, of " + std::to_string(devices) + " devices";
  }
};

std::vector<Layout> Layouts() {
  std::vector<Layout> layouts;
  for (int ranks : {1, 2, 4}) {
    for (int pipe : {1, 2}) {
      for (int devices : {1, 2}) {
        if (pipe <= ranks) layouts.push_back({ranks, pipe, devices});
      }
    }
  }
  return layouts;
}

Flags Job(const std::string& model, const Flags& more) {
  const Flags flags =
      TinyJob(model, {"--reproducible", "--batch_size=16",
                      "--microbatch_size=2", "--synthetic_samples=64"});
  return Joined(flags, more);
}

// Losses, as they were written, and the final weights.
void ExpectSameBits(const Events& events, const Events& expected,
                    const std::string& name) {
  EXPECT_EQ(Fingerprint(events), Fingerprint(expected)) << name;
  const Events steps = EventsOf(events, "step");
  const Events wanted = EventsOf(expected, "step");
  ASSERT_EQ(steps.size(), wanted.size()) << name;
  for (size_t i = 0; i < steps.size(); ++i) {
    EXPECT_EQ(steps[i]["loss"], wanted[i]["loss"]) << name << ", step " << i;
  }
}

class ReproducibleTest : public testing::TestWithParam<std::string> {};

TEST_P(ReproducibleTest, EveryLayoutGivesOneDevicesBits) {
  const Events& one = EventsOfJob(Job(GetParam(), {}));
  EXPECT_EQ(one.front()["strategy"], "single");
  EXPECT_EQ(EventsOf(one, "step").size(), 4u);
  EXPECT_NE(Fingerprint(one),
            Fingerprint(EventsOfJob(Job(GetParam(), {"--max_steps=1"}))));
  int compared = 0;
  std::set<std::string> strategies;
  for (const Layout& layout : Layouts()) {
    const Events& events = EventsOfJob(Job(GetParam(), layout.flags()));
    ExpectSameBits(events, one, layout.name());
    strategies.insert(events.front()["strategy"]);
    ++compared;
  }
  std::cout << compared << " layouts of " << GetParam() << "\n";
  EXPECT_EQ(compared, 10);
  EXPECT_EQ(strategies,
            (std::set<std::string>{"single", "ddp", "pipeline", "hybrid"}));
}

INSTANTIATE_TEST_SUITE_P(Models, ReproducibleTest,
                         testing::Values("mlp_small", "mlp_dropout",
                                         "gpt_tiny_tied", "resnet18"),
                         [](const auto& info) { return info.param; });

TEST(ReproducibleSchedulesTest, EveryScheduleGivesOneDevicesBits) {
  const Events& one = EventsOfJob(Job("mlp_small", {}));
  int compared = 0;
  for (const std::string schedule :
       {"gpipe", "1f1b", "interleaved_1f1b", "looped_bfs", "zb_h1", "zb_v"}) {
    for (const Layout& layout :
         {Layout{1, 1, 2}, Layout{2, 1, 2}, Layout{4, 2, 1}, Layout{2, 2, 1}}) {
      const Events events = RunJobForEvents(
          Job("mlp_small", Joined(layout.flags(), {"--schedule=" + schedule})));
      ExpectSameBits(events, one, schedule + ", " + layout.name());
      ++compared;
    }
  }
  EXPECT_EQ(compared, 24);
}

// As on GPUs: on streams of devices, over ordered queues without tags.
TEST(ReproducibleStreamsTest, LayoutsOverSimulatedNcclGiveTheCpusBits) {
  const Events& one = EventsOfJob(Job("mlp_dropout", {}));
  const Flags nccl = {"--device=sim", "--backend=sim_nccl",
                      "--sim_delay_us=20"};
  int compared = 0;
  for (const Layout& layout :
       {Layout{2, 1, 1}, Layout{2, 2, 1}, Layout{2, 1, 2}, Layout{2, 2, 2},
        Layout{4, 2, 1}}) {
    const Events events =
        RunJobForEvents(Job("mlp_dropout", Joined(layout.flags(), nccl)));
    ExpectSameBits(events, one, "sim_nccl, " + layout.name());
    ++compared;
  }
  std::cout << compared << " layouts of mlp_dropout on sim_nccl\n";
  EXPECT_EQ(compared, 5);
}

TEST(ReproducibleResumeTest, ACheckpointOfOneLayoutGoesOnInAnother) {
  const std::string folder = NewFolder("reproducible");
  const Flags job =
      Job("mlp_dropout", {"--clip_grad_norm=0.5", "--optimizer=adamw"});
  const Events straight = RunJobForEvents(Joined(
      job, {"--nproc_per_node=4", "--save_dir=" + folder, "--save_every=2"}));
  const Events steps = EventsOf(straight, "step");
  ASSERT_EQ(steps.size(), 4u);
  const Flags resume = {"--resume=" + folder + "/step-000000002"};
  for (const Layout& layout :
       {Layout{2, 2, 1}, Layout{4, 2, 1}, Layout{1, 1, 2}, Layout{2, 1, 2}}) {
    const Events events =
        RunJobForEvents(Joined(Joined(job, layout.flags()), resume));
    EXPECT_EQ(Fingerprint(events), Fingerprint(straight)) << layout.name();
    const Events rest = EventsOf(events, "step");
    ASSERT_EQ(rest.size(), 2u) << layout.name();
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(rest[i]["loss"], steps[i + 2]["loss"]) << layout.name();
    }
  }
}

TEST(ReproducibleRefusalTest, WhatWouldShowTheLayoutIsRefused) {
  struct Refusal {
    Flags flags;
    std::string message;
  };
  for (const Refusal& refusal : std::vector<Refusal>{
           {{"--microbatch_size=0"}, "--reproducible needs --microbatch_size"},
           {{"--microbatch_size=3"}, "--microbatch_size=3 does not divide"},
           {{"--gradient_groups=3"}, "--gradient_groups=3"},
           {{"--comm_hook=fp16"}, "--comm_hook=fp16 rounds"},
           {{"--weight_gradient_batch=2"}, "--weight_gradient_batch=2"},
           {{"--deferred_batch_norm"}, "--deferred_batch_norm takes"},
           {{"--pipe=2"}, "--pipe=2"}}) {
    const ProgramResult result =
        RunProgram(kTrain, Job("mlp_small", refusal.flags));
    EXPECT_NE(result.exit_code, 0) << refusal.message;
    EXPECT_THAT(result.err, testing::HasSubstr(refusal.message));
  }
}

}  // namespace
}  // namespace tandem
