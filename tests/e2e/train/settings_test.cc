// Ranks that were started with different settings: refused before the first
// step, whoever started them.

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/testing/process_testing.h"
#include "tests/e2e/train/runs.h"

namespace tandem::settings_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Starts two ranks that differ in the flags of their own and in how they say
// who they are, and waits.
std::vector<ProgramResult> RunTwo(const Flags& both,
                                  const std::vector<Flags>& own) {
  std::vector<std::unique_ptr<Program>> ranks;
  for (const Flags& mine : own) {
    ranks.push_back(std::make_unique<Program>(kTrain, Joined(both, mine)));
  }
  std::vector<ProgramResult> results;
  for (const auto& rank : ranks) results.push_back(rank->Wait());
  return results;
}

// By hand: with --rank and --dist_url.
std::vector<ProgramResult> RunByHand(const Flags& both, const Flags& first,
                                     const Flags& second) {
  const std::string url =
      "--dist_url=tcp://127.0.0.1:" + std::to_string(FreePort());
  return RunTwo(Joined(both, {"--world_size=2", "--timeout=60", url}),
                {Joined(first, {"--rank=0"}), Joined(second, {"--rank=1"})});
}

void ExpectRanksRefused(const std::vector<ProgramResult>& ranks,
                        const std::string& says) {
  for (const ProgramResult& rank : ranks) {
    EXPECT_EQ(rank.exit_code, 2) << rank.err;
    EXPECT_THAT(rank.err, AllOf(HasSubstr("the ranks' settings differ: "),
                                HasSubstr(says)));
    EXPECT_THAT(rank.out, Not(HasSubstr("epoch 1  step")));
  }
}

struct OtherFlag {
  const char* name;
  std::string second;  // on rank 1 alone
  std::string says;
};

class OtherFlagTest : public testing::TestWithParam<OtherFlag> {};

TEST_P(OtherFlagTest, IsRefusedOnBothRanks) {
  ExpectRanksRefused(RunByHand(SmallJob(), {}, {GetParam().second}),
                     GetParam().says);
}

INSTANTIATE_TEST_SUITE_P(
    All, OtherFlagTest,
    testing::Values(
        OtherFlag{"LearningRate", "--learning_rate=0.001",
                  "--learning_rate is not given on rank 0, 0.001 on rank 1"},
        OtherFlag{"Seed", "--seed=5", "--seed is 0 on rank 0, 5 on rank 1"},
        OtherFlag{"Backend", "--backend=gloo",
                  "--backend is shm on rank 0, gloo on rank 1"},
        OtherFlag{"BatchSize", "--batch_size=32",
                  "--batch_size is 16 on rank 0, 32 on rank 1"},
        OtherFlag{"MaxSteps", "--max_steps=2",
                  "--max_steps is 0 on rank 0, 2 on rank 1"},
        OtherFlag{"Network", "--model=mlp_deep",
                  "--model is mlp_small on rank 0, mlp_deep on rank 1"},
        OtherFlag{"Strategy", "--strategy=hybrid",
                  "--strategy is auto on rank 0, hybrid on rank 1"},
        OtherFlag{"Samples", "--synthetic_samples=64",
                  "--synthetic_samples is 96 on rank 0, 64 on rank 1"}),
    [](const auto& info) { return info.param.name; });

TEST(OtherSettingsTest, AScheduleFilesContentsAreCompared) {
  const std::string folder = NewFolder("schedules");
  std::ofstream(folder + "/a.txt") << "F0 F1 B0 B1\nF0 B0 F1 B1\n";
  std::ofstream(folder + "/b.txt") << "F0 F1 B0 B1\nF0 F1 B0 B1\n";
  ExpectRanksRefused(
      RunByHand(SmallJob({"--pipe=2"}), {"--schedule=" + folder + "/a.txt"},
                {"--schedule=" + folder + "/b.txt"}),
      "--schedule's device 1 is stages 1; 1F0 1B0 1F1 1B1 on rank 0, "
      "stages 1; 1F0 1F1 1B0 1B1 on rank 1");
}

TEST(OtherSettingsTest, TwoLaunchersAreComparedToo) {
  const std::string port = "--master_port=" + std::to_string(FreePort());
  const std::vector<ProgramResult> nodes =
      RunTwo(SmallJob({"--nnodes=2", "--nproc_per_node=1",
                       "--master_addr=127.0.0.1", "--timeout=60", port}),
             {{"--node_rank=0"}, {"--node_rank=1", "--momentum=0"}});
  ExpectRanksRefused(nodes, "--momentum is 0.9 on rank 0, 0 on rank 1");
}

// Collectives are checked on one rank alone, which would wait for ever.
TEST(OtherSettingsTest, WhatTheEnvironmentSaysIsComparedWhereItMatters) {
  const std::string url =
      "--dist_url=tcp://127.0.0.1:" + std::to_string(FreePort());
  ProgramOptions checked;
  checked.environment["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL";
  const Flags flags = SmallJob({"--world_size=2", "--timeout=60", url});
  Program one(kTrain, Joined(flags, {"--rank=0"}));
  Program other(kTrain, Joined(flags, {"--rank=1"}), checked);
  ExpectRanksRefused(
      {one.Wait(), other.Wait()},
      "TORCH_DISTRIBUTED_DEBUG=DETAIL is not set on rank 0, set on "
      "rank 1");
}

TEST(OtherSettingsTest, WhatBelongsToARankMayDiffer) {
  const std::string logs = NewFolder("logs");
  const std::vector<ProgramResult> ranks = RunByHand(
      SmallJob({"--max_steps=1"}),
      {"--log_dir=" + logs + "/a", "--workers=0",
       "--metrics_file=" + logs + "/metrics"},
      {"--log_dir=" + logs + "/b", "--workers=2", "--intra_op_threads=2"});
  for (const ProgramResult& rank : ranks) {
    EXPECT_EQ(rank.exit_code, 0) << rank.err;
  }
}

TEST(OtherSettingsTest, AnotherCheckpointIsRefused) {
  const std::string folder = NewFolder("checkpoints");
  for (const std::string rank : {"0", "1"}) {
    const ProgramResult saved = RunProgram(
        kTrain, SmallJob({"--save_dir=" + folder + "/" + rank,
                          rank == "0" ? "--max_steps=1" : "--max_steps=2"}));
    ASSERT_EQ(saved.exit_code, 0) << saved.err;
  }
  // A path that leads each rank to another checkpoint, as on hosts that have
  // folders of their own.
  std::filesystem::rename(folder + "/1/step-000000002",
                          folder + "/1/step-000000001");
  const std::string url =
      "--dist_url=tcp://127.0.0.1:" + std::to_string(FreePort());
  std::vector<std::unique_ptr<Program>> ranks;
  for (const std::string rank : {"0", "1"}) {
    ProgramOptions options;
    options.working_folder = folder + "/" + rank;
    ranks.push_back(std::make_unique<Program>(
        kTrain,
        SmallJob({"--world_size=2", "--timeout=60", url, "--rank=" + rank,
                  "--resume=/proc/self/cwd"}),
        options));
  }
  for (const auto& rank : ranks) {
    const ProgramResult result = rank->Wait();
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_THAT(result.err, HasSubstr("the step is 1 on rank 0, 2 on rank 1"));
  }
}

}  // namespace
}  // namespace tandem::settings_test
