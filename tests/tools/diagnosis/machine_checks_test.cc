#include "tools/diagnosis/machine_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/diagnosis/findings.h"

namespace tandem::machine_checks_test {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;

constexpr Severity kFine = Severity::kFine;
constexpr Severity kSlow = Severity::kSlow;
constexpr Severity kStopped = Severity::kStopped;

PlannedJob Ranks(int ranks, int machines = 1) {
  return {/*on_gpus=*/false, ranks, machines};
}

// The counts of docs/launching.md: three descriptors a rank of one machine;
// shm+gloo of 64 ranks on 8 machines 102.
TEST(DescriptorsOfRankTest, AsCounted) {
  EXPECT_EQ(DescriptorsOfRank(Ranks(1)), 4 * 3 + 1 + 64u);
  EXPECT_EQ(DescriptorsOfRank(Ranks(64)), 4 * 192 + 64 + 64u);
  EXPECT_EQ(DescriptorsOfRank(Ranks(8, 8)), 4 * 102 + 64 + 64u);
}

TEST(CheckFilesTest, TheSoftLimitAgainstTheJob) {
  LimitFacts limits;
  limits.files = 256;
  limits.most_files = 4096;
  EXPECT_THAT(CheckFiles(limits, Ranks(2)),
              ElementsAre(IsFinding(kFine, "ulimit -n is 256", "")));
  EXPECT_THAT(
      CheckFiles(limits, Ranks(64)),
      ElementsAre(IsFinding(kFine,
                            "raise to the hard limit, 4096; a rank of this job "
                            "needs about 896",
                            "")));
  limits.most_files = 256;
  EXPECT_THAT(
      CheckFiles(limits, Ranks(64)),
      ElementsAre(IsFinding(kStopped, "ulimit -n is 256", "hard limit, 256")));
  limits.files = 896;
  EXPECT_THAT(CheckFiles(limits, Ranks(64)),
              ElementsAre(IsFinding(kFine, "", "")));
  EXPECT_THAT(CheckFiles(LimitFacts(), Ranks(1000, 1000)),
              ElementsAre(IsFinding(kFine, "unlimited", "")));
}

TEST(CheckSharedMemoryTest, ThereOrNot) {
  LimitFacts limits;
  limits.shm_bytes = uint64_t{2} << 30;
  limits.shm_free_bytes = uint64_t{1} << 30;
  EXPECT_THAT(CheckSharedMemory(limits),
              ElementsAre(IsFinding(kFine, "1 GiB of 2 GiB left", "")));
  limits.shm_writable = false;
  EXPECT_THAT(CheckSharedMemory(limits),
              ElementsAre(IsFinding(kSlow, "/dev/shm is not there", "mount")));
}

TEST(CheckCoresTest, AffinityAndQuota) {
  ProcessorFacts facts;
  facts.cores = 64;
  facts.usable_cores = 64;
  EXPECT_THAT(CheckCores(facts, Ranks(64)),
              ElementsAre(IsFinding(kFine, "64 of 64 cores", "")));
  facts.usable_cores = 4;
  EXPECT_THAT(
      CheckCores(facts, Ranks(2)),
      ElementsAre(IsFinding(kFine, "4 of 64 cores (its affinity)", "")));
  facts.quota = 1.5;
  EXPECT_THAT(
      CheckCores(facts, Ranks(2)),
      ElementsAre(IsFinding(kSlow,
                            "1.5 of 64 cores (the control group's quota), and "
                            "2 ranks",
                            "docker run --cpus")));
}

TEST(CheckThreadsTest, TheControlGroupsLimit) {
  LimitFacts limits;
  ProcessorFacts facts;
  facts.usable_cores = 8;
  EXPECT_THAT(CheckThreads(limits, facts, Ranks(2)), ElementsAre());
  limits.tasks_left = 40;
  EXPECT_THAT(CheckThreads(limits, facts, Ranks(2)),
              ElementsAre(IsFinding(kFine, "allows 40 more threads", "")));
  limits.tasks_left = 39;
  EXPECT_THAT(CheckThreads(limits, facts, Ranks(2)),
              ElementsAre(IsFinding(kStopped, "has about 40", "pids-limit")));
}

TEST(CheckLoadTest, OtherProgramsUseTheCores) {
  ProcessorFacts facts;
  facts.cores = 2;
  facts.load.average = 1;
  EXPECT_THAT(CheckLoad(facts, Ranks(1)), ElementsAre());
  facts.load.average = 5.04;
  EXPECT_THAT(CheckLoad(facts, Ranks(1)),
              ElementsAre(IsFinding(kSlow, "5.0 threads use the 2 cores",
                                    "--intra_op_threads")));
  EXPECT_THAT(CheckLoad(facts, {/*on_gpus=*/true, 1, 1}), ElementsAre());
}

TEST(CheckMemoryTest, LimitAndRest) {
  ProcessorFacts facts;
  facts.available_memory = uint64_t{1} << 30;
  EXPECT_THAT(CheckMemory(facts, Ranks(3)),
              ElementsAre(IsFinding(kFine, "1 GiB of memory are left", "")));
  EXPECT_THAT(CheckMemory(facts, Ranks(4)),
              ElementsAre(IsFinding(kStopped, "1 GiB of memory are left",
                                    "300 MiB a rank")));
  facts.available_memory -= 1;
  facts.memory_limit = uint64_t{4} << 30;
  EXPECT_THAT(CheckMemory(facts, Ranks(3)),
              ElementsAre(IsFinding(kSlow, "limit is 4 GiB", "raise")));
  facts.available_memory = uint64_t{600} << 20;
  EXPECT_THAT(CheckMemory(facts, Ranks(2)),
              ElementsAre(IsFinding(kSlow, "600 MiB of memory", "raise")));
  facts.available_memory -= 1;
  EXPECT_THAT(CheckMemory(facts, Ranks(2)),
              ElementsAre(IsFinding(kStopped, "limit is 4 GiB", "raise")));
}

TEST(CheckProcessorTest, WhatInstructionsMean) {
  ProcessorFacts facts;
  facts.name = "A processor";
  EXPECT_THAT(
      CheckProcessor(facts, Ranks(1)),
      ElementsAre(IsFinding(kFine, "A processor (none of", ""),
                  IsFinding(kSlow, "without AVX2", "another machine"),
                  IsFinding(kSlow, "bf16 is computed in software", "fp32")));
  facts.instructions = {"avx2", "avx512_f", "avx512_bf16"};
  EXPECT_THAT(CheckProcessor(facts, Ranks(1)),
              ElementsAre(IsFinding(kFine, "(avx2, avx512_f, avx512_bf16)", ""),
                          IsFinding(kFine, "instructions (AVX512_BF16)", "")));
  facts.instructions.insert({"amx_bf16", "amx_fp16"});
  EXPECT_THAT(
      CheckProcessor(facts, Ranks(1)),
      Contains(IsFinding(kFine, "(AMX): mixed precision pays, in fp16", "")));
}

// On GPUs it does not matter what the processor's products are.
TEST(CheckProcessorTest, ProductsAreOfNoConcernOnGpus) {
  ProcessorFacts facts;
  facts.instructions = {"avx2"};
  EXPECT_THAT(CheckProcessor(facts, {/*on_gpus=*/true, 1, 1}),
              ElementsAre(IsFinding(kFine, "avx2", "")));
}

TEST(CheckNetworkTest, WithoutLoopbackNothingMeets) {
  NetworkFacts facts{"Cannot assign requested address", "node", "10.0.0.7"};
  EXPECT_THAT(CheckNetwork(facts, Ranks(1)),
              Contains(IsFinding(kStopped, "Cannot assign requested address",
                                 "ip link set lo up")));
}

TEST(CheckNetworkTest, TheNameMattersBetweenMachines) {
  NetworkFacts facts{"", "node", "10.0.0.7"};
  EXPECT_THAT(CheckNetwork(facts, Ranks(1, 2)),
              ElementsAre(IsFinding(kFine, "node, stands for 10.0.0.7", "")));
  facts.address = "127.0.1.1";
  EXPECT_THAT(CheckNetwork(facts, Ranks(1)),
              ElementsAre(IsFinding(kFine, "127.0.1.1", "")));
  EXPECT_THAT(CheckNetwork(facts, Ranks(1, 2)),
              ElementsAre(IsFinding(kSlow, "cannot reach", "--master_addr")));
  facts.address = "";
  EXPECT_THAT(CheckNetwork(facts, Ranks(1)),
              ElementsAre(IsFinding(kFine, "no address", "")));
  EXPECT_THAT(CheckNetwork(facts, Ranks(1, 2)),
              ElementsAre(IsFinding(kSlow, "no address", "--master_addr")));
}

}  // namespace
}  // namespace tandem::machine_checks_test
