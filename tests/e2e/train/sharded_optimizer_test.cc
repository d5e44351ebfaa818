// --shard_optimizer: the weights and the checkpoints of a job without, and any
// number of replicas goes on.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/e2e/program.h"
#include "tests/e2e/train/pipeline_runs.h"
#include "tests/e2e/train/runs.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

using testing::HasSubstr;

// Eight steps of 16 samples.
Flags Job(const Flags& more) {
  return Joined(
      TinyJob("gpt_tiny_tied",
              {"--reproducible", "--batch_size=16", "--microbatch_size=2",
               "--synthetic_samples=64", "--epochs=2", "--optimizer=adamw"}),
      more);
}

// The fingerprint of a checkpoint whose checksums hold.
std::string WeightsOf(const std::string& checkpoint) {
  const ProgramResult result = RunProgram(kInspect, {checkpoint});
  EXPECT_THAT(result.out, HasSubstr("checksums hold"));
  return result.out.substr(result.out.find("weights_sha256"));
}

TEST(ShardedOptimizerTest, ACheckpointOfSharesGoesOnAnywhere) {
  const std::string straight = Fingerprint(RunJobForEvents(Job({})));
  std::vector<std::string> files;
  for (const std::string sharding : {"on", "off"}) {
    const std::string folder = NewFolder("shared_" + sharding);
    const Events events = RunJobForEvents(
        Job({"--nproc_per_node=4", "--pipe=2", "--shard_optimizer=" + sharding,
             "--save_dir=" + folder, "--save_every=3"}));
    EXPECT_EQ(Fingerprint(events), straight);
    files.push_back(folder + "/step-000000003");
  }
  EXPECT_EQ(WeightsOf(files[0]), WeightsOf(files[1]));
  // Each of the four ranks has written its own.
  EXPECT_TRUE(fs::exists(files[0] + "/rank-00003.safetensors"));
  EXPECT_FALSE(fs::exists(files[1] + "/rank-00003.safetensors"));
  for (const Flags& layout :
       std::vector<Flags>{{},
                          {"--nproc_per_node=2", "--shard_optimizer=on"},
                          {"--nproc_per_node=2", "--shard_optimizer=off"},
                          {"--nproc_per_node=2", "--devices_per_rank=2",
                           "--shard_optimizer=on"},
                          {"--nproc_per_node=4", "--shard_optimizer=on"}}) {
    const Events events =
        RunJobForEvents(Joined(Job(layout), {"--resume=" + files[0]}));
    EXPECT_EQ(EventsOf(events, "step").front()["step"], 4);
    EXPECT_EQ(Fingerprint(events), straight);
  }
}

// What the settings say of the optimizer's state.
std::string StateOf(const Flags& flags) {
  const Events events = RunJobForEvents(
      SmallJob(Joined({"--nproc_per_node=2", "--max_steps=2"}, flags)));
  return EventsOf(events, "settings").front()["optimizer_state"];
}

TEST(ShardedOptimizerTest, SettingsSayWhoKeepsTheStateAndWhy) {
  EXPECT_THAT(StateOf({}), HasSubstr("it pays from 1000000 on"));
  EXPECT_THAT(StateOf({"--shard_optimizer=on"}),
              HasSubstr("shared by 2 replicas"));
  EXPECT_THAT(StateOf({"--model=mlp_wide", "--optimizer=adamw"}),
              HasSubstr("shared by 2 replicas"));
  EXPECT_THAT(StateOf({"--model=mlp_wide"}), HasSubstr("so little state"));
  EXPECT_THAT(StateOf({"--model=mlp_wide", "--backend=gloo"}),
              HasSubstr("do not share memory"));
  EXPECT_THAT(StateOf({"--model=mlp_wide", "--static_graph"}),
              HasSubstr("ddp.static_graph"));
  EXPECT_THAT(StateOf({"--shard_optimizer=off"}), HasSubstr("not asked for"));
}

}  // namespace
}  // namespace tandem
