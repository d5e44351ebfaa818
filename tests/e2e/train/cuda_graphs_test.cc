// --cuda_graphs: the same weights, and a line that says what became of it.

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/train/runs.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Twelve steps, six an epoch, each with a learning rate of its own at first.
Flags Job(const Flags& more) {
  Flags job = SmallJob({"--device=sim", "--sim_async", "--epochs=2",
                        "--optimizer=adamw", "--lr_warmup_steps=4"});
  job.insert(job.end(), more.begin(), more.end());
  return job;
}

struct Run {
  std::string weights;
  std::string output;
};

Run Train(Flags flags, bool graphs) {
  if (graphs) flags.push_back("--cuda_graphs");
  ProgramResult program;
  const Events events = RunJobForEvents(flags, &program);
  return {Fingerprint(events), program.out + program.err};
}

void ExpectSameWeights(const Flags& flags, const std::string& line) {
  const Run without = Train(flags, /*graphs=*/false);
  const Run with = Train(flags, /*graphs=*/true);
  EXPECT_EQ(with.weights, without.weights);
  EXPECT_THAT(with.output, HasSubstr("CUDA graphs: " + line));
  EXPECT_THAT(without.output, Not(HasSubstr("CUDA graphs")));
}

TEST(CudaGraphsTest, StepsAreReplayed) {
  ExpectSameWeights(Job({}), "captured after 3 steps");
  ExpectSameWeights(Job({"--dtype=bf16"}), "captured after 3 steps");
}

TEST(CudaGraphsTest, ReplicasReplayTheirSteps) {
  ExpectSameWeights(Job({"--nproc_per_node=2", "--backend=sim_nccl"}),
                    "captured after 3 steps");
}

TEST(CudaGraphsTest, PipelinesReplayTheirMiddleMicrobatches) {
  const std::string line = "middle microbatches captured after 3 steps";
  const Flags pipeline = {"--strategy=pipeline", "--microbatches=4"};
  const auto with = [&](Flags more) {
    more.insert(more.end(), pipeline.begin(), pipeline.end());
    return Job(more);
  };
  ExpectSameWeights(with({"--devices_per_rank=2"}), line);
  ExpectSameWeights(
      with({"--pipe=2", "--nproc_per_node=2", "--backend=sim_nccl"}), line);
}

TEST(CudaGraphsTest, WhatHasNoGraphSaysWhy) {
  ExpectSameWeights(Job({"--nproc_per_node=2"}),
                    "off: replicas exchange through the host's memory");
  ExpectSameWeights(Job({"--devices_per_rank=2", "--strategy=model_parallel"}),
                    "off: a step has 1 microbatch");
  ExpectSameWeights(Job({"--clip_grad_norm=1"}),
                    "off: the host reads the norm");
  ExpectSameWeights(Job({"--model=mlp_dropout"}),
                    "off: layers draw random numbers");
  ExpectSameWeights(SmallJob({}), "off: cpu has no graphs");
}

}  // namespace
}  // namespace tandem
