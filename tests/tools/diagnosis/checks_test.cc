// What a machine and its GPUs are found to be.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>

#include "tools/diagnosis/facts.h"
#include "tools/diagnosis/gpu_checks.h"
#include "tools/diagnosis/machine_checks.h"

namespace tandem {

// Where GoogleTest looks for it.
inline void PrintTo(const Finding& finding, std::ostream* out) {
  *out << static_cast<int>(finding.severity) << " " << finding.subject << ": "
       << finding.what << "; " << finding.fix;
}

}  // namespace tandem

namespace tandem::checks_test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

constexpr Severity kFine = Severity::kFine;
constexpr Severity kSlow = Severity::kSlow;
constexpr Severity kStopped = Severity::kStopped;

// A finding of this severity whose `what` and `fix` have these texts.
MATCHER_P3(IsFinding, severity, what, fix, "") {
  return arg.severity == severity && arg.what.find(what) != std::string::npos &&
         arg.fix.find(fix) != std::string::npos;
}

// Findings that are this one.
testing::Matcher<const Findings&> OneFinding(Severity severity,
                                             const std::string& what,
                                             const std::string& fix = "") {
  return ElementsAre(IsFinding(severity, what, fix));
}

constexpr uint64_t kGiB = uint64_t{1} << 30;

PlannedJob OnGpus(int ranks, int machines = 1) {
  return {/*on_gpus=*/true, ranks, machines};
}

Gpu H100() {
  Gpu gpu;
  gpu.name = "H100";
  gpu.memory = 80 * kGiB;
  gpu.free_memory = 79 * kGiB;
  gpu.major = 9;
  return gpu;
}

// A machine as it should be.
CudaFacts Machine(int gpus) {
  CudaFacts facts;
  facts.driver.version = "580.65.06";
  facts.driver.cuda = 13000;
  facts.driver.gpus.assign(gpus, H100());
  facts.in_build = true;
  facts.runtime = 13000;
  facts.nccl = "2.28.9";
  facts.usable_gpus = gpus;
  return facts;
}

GpuLink Link(int first, int second, bool nvlink, bool peer) {
  return {first, second, nvlink, "a host bridge", peer};
}

TEST(CheckDriverTest, ANewDriverIsFine) {
  EXPECT_THAT(CheckDriver(Machine(1), OnGpus(1)),
              OneFinding(kFine, "580.65.06 runs CUDA up to 13.0"));
}

TEST(CheckDriverTest, AnOldDriverStopsGpusAlone) {
  CudaFacts facts = Machine(1);
  facts.driver.version = "550.54.15";
  facts.driver.cuda = 12040;
  const char* what =
      "550.54.15 runs CUDA up to 12.4, and this program is of 13.0";
  EXPECT_THAT(CheckDriver(facts, OnGpus(1)),
              OneFinding(kStopped, what, "driver 580 or newer"));
  EXPECT_THAT(CheckDriver(facts, {}), OneFinding(kFine, what));
}

// A driver of CUDA 13.0 runs programs of 13.2, too.
TEST(CheckDriverTest, TheMajorVersionDecides) {
  CudaFacts facts = Machine(1);
  facts.runtime = 13020;
  EXPECT_THAT(CheckDriver(facts, OnGpus(1)), OneFinding(kFine, "is of 13.2"));
}

TEST(CheckDriverTest, NoDriver) {
  CudaFacts facts;
  facts.driver.missing = "it is not there";
  EXPECT_THAT(CheckDriver(facts, {}), OneFinding(kFine, "it is not there"));
  EXPECT_THAT(CheckDriver(facts, OnGpus(1)),
              OneFinding(kStopped, "it is not there", "--gpus=all"));
  EXPECT_THAT(CheckBuild(facts, OnGpus(1)), IsEmpty());
}

TEST(CheckBuildTest, GpusThatTheBuildCannotUse) {
  CudaFacts facts = Machine(2);
  facts.in_build = false;
  EXPECT_THAT(CheckBuild(facts, OnGpus(1)),
              OneFinding(kStopped, "built without CUDA", "--config=cuda"));
  EXPECT_THAT(CheckBuild(facts, {}), OneFinding(kSlow, "2 GPUs"));
}

TEST(CheckBuildTest, RanksNeedAGpuEach) {
  CudaFacts facts = Machine(4);
  EXPECT_THAT(CheckBuild(facts, OnGpus(4)),
              OneFinding(kFine, "see 4 of the machine's 4"));
  EXPECT_THAT(CheckBuild(facts, OnGpus(5)),
              OneFinding(kStopped, "5 ranks need", "start fewer ranks"));
  facts.visible = "0";
  facts.usable_gpus = 1;
  EXPECT_THAT(CheckBuild(facts, OnGpus(1)),
              OneFinding(kFine, "CUDA_VISIBLE_DEVICES is \"0\""));
  EXPECT_THAT(CheckBuild(facts, OnGpus(4)),
              OneFinding(kStopped, "see 1 of the machine's 4 GPUs",
                         "name more in CUDA_VISIBLE_DEVICES"));
}

TEST(CheckGpusTest, AGoodGpuIsOneLine) {
  EXPECT_THAT(
      CheckGpus(Machine(1), OnGpus(1)),
      OneFinding(kFine, "GPU 0, H100 (compute capability 9.0, 80 GiB)"));
  EXPECT_THAT(CheckGpus(Machine(0), {}), IsEmpty());
}

TEST(CheckGpusTest, OldGpus) {
  CudaFacts facts = Machine(3);
  facts.driver.gpus[0].major = 7;  // Volta
  facts.driver.gpus[1].major = 7;  // Turing
  facts.driver.gpus[1].minor = 5;
  const Findings found = CheckGpus(facts, OnGpus(3));
  EXPECT_THAT(found, SizeIs(5));
  EXPECT_THAT(found, Contains(IsFinding(kStopped,
                                        "GPU 0 has compute capability"
                                        " 7.0",
                                        "CUDA_VISIBLE_DEVICES")));
  EXPECT_THAT(found, Contains(IsFinding(kSlow, "GPU 1 computes bf16", "fp16")));
}

TEST(CheckGpusTest, GpusThatAreNotFree) {
  CudaFacts facts = Machine(3);
  facts.driver.gpus[0].no_process = true;
  facts.driver.gpus[1].split = true;
  facts.driver.gpus[2].free_memory = 40 * kGiB;
  const Findings found = CheckGpus(facts, OnGpus(3));
  EXPECT_THAT(found, SizeIs(6));
  EXPECT_THAT(found, Contains(IsFinding(kStopped, "GPU 0 is in", "DEFAULT")));
  EXPECT_THAT(found,
              Contains(IsFinding(kSlow, "GPU 1 is split", "nvidia-smi")));
  EXPECT_THAT(found, Contains(IsFinding(kSlow,
                                        "GPU 2's memory other processes "
                                        "hold 40 GiB",
                                        "nvidia-smi")));
}

TEST(CheckLinksTest, OneGpuHasNone) {
  EXPECT_THAT(CheckLinks(Machine(1)), IsEmpty());
}

TEST(CheckLinksTest, PairsByHowTheyReachEachOther) {
  CudaFacts facts = Machine(3);
  facts.driver.links = {Link(0, 1, true, true), Link(0, 2, false, true),
                        Link(1, 2, false, false)};
  EXPECT_THAT(
      CheckLinks(facts),
      ElementsAre(
          IsFinding(kFine, "GPUs 0-1: NVLink", ""),
          IsFinding(kFine, "GPUs 0-2: PCIe by way of a host bridge", ""),
          IsFinding(kSlow,
                    "GPUs 1-2: PCIe by way of a host bridge, "
                    "without peer-to-peer",
                    "ACS")));
}

TEST(CheckNcclTest, SharedMemoryOfContainers) {
  LimitFacts limits;
  limits.shm_free_bytes = 64 << 20;
  const auto slow =
      IsFinding(kSlow, "/dev/shm, which has 64 MiB left", "--shm-size=1g");
  EXPECT_THAT(CheckNccl(Machine(2), limits, OnGpus(2)), Contains(slow));
  // One rank shares with nobody.
  EXPECT_THAT(CheckNccl(Machine(1), limits, OnGpus(1)), SizeIs(1));
  limits.shm_free_bytes = kGiB;
  EXPECT_THAT(CheckNccl(Machine(2), limits, OnGpus(2)),
              OneFinding(kFine, "NCCL 2.28.9"));
}

TEST(CheckNcclTest, InfinibandNeedsLockedMemory) {
  CudaFacts facts = Machine(1);
  LimitFacts limits;
  limits.locked_bytes = 8 << 20;
  EXPECT_THAT(CheckNccl(facts, limits, OnGpus(1, 2)), SizeIs(1));
  facts.infiniband = true;
  EXPECT_THAT(CheckNccl(facts, limits, OnGpus(1, 2)),
              Contains(IsFinding(kSlow, "limited to 8 MiB", "ulimit -l")));
  EXPECT_THAT(CheckNccl(facts, limits, OnGpus(1)), SizeIs(1));
  limits.locked_bytes = kNoLimit;
  EXPECT_THAT(CheckNccl(facts, limits, OnGpus(1, 2)), SizeIs(1));
}

TEST(CheckNcclTest, ABuildWithoutItSaysNothing) {
  EXPECT_THAT(CheckNccl(CudaFacts(), LimitFacts(), OnGpus(2)), IsEmpty());
}

PlannedJob Ranks(int ranks, int machines = 1) {
  return {/*on_gpus=*/false, ranks, machines};
}

// The counts of docs/launching.md: three descriptors a rank of one machine;
// shm+gloo of 64 ranks on 8 machines 102.
TEST(DescriptorsOfRankTest, AsCounted) {
  EXPECT_EQ(RankDescriptors(Ranks(1)), 4 * 3 + 1 + 64u);
  EXPECT_EQ(RankDescriptors(Ranks(64)), 4 * 192 + 64 + 64u);
  EXPECT_EQ(RankDescriptors(Ranks(8, 8)), 4 * 102 + 64 + 64u);
}

TEST(CheckFilesTest, TheSoftLimitAgainstTheJob) {
  LimitFacts limits;
  limits.files = 256;
  limits.most_files = 4096;
  EXPECT_THAT(CheckFiles(limits, Ranks(2)),
              OneFinding(kFine, "ulimit -n is 256"));
  EXPECT_THAT(CheckFiles(limits, Ranks(64)),
              OneFinding(kFine,
                         "raise to the hard limit, 4096; a rank of this job "
                         "needs about 896"));
  limits.most_files = 256;
  EXPECT_THAT(CheckFiles(limits, Ranks(64)),
              OneFinding(kStopped, "ulimit -n is 256", "hard limit, 256"));
  limits.files = 896;
  EXPECT_THAT(CheckFiles(limits, Ranks(64)), OneFinding(kFine, ""));
  EXPECT_THAT(CheckFiles(LimitFacts(), Ranks(1000, 1000)),
              OneFinding(kFine, "unlimited"));
}

TEST(CheckSharedMemoryTest, ThereOrNot) {
  LimitFacts limits;
  limits.shm_bytes = uint64_t{2} << 30;
  limits.shm_free_bytes = uint64_t{1} << 30;
  EXPECT_THAT(CheckSharedMemory(limits),
              OneFinding(kFine, "1 GiB of 2 GiB left"));
  limits.shm_writable = false;
  EXPECT_THAT(CheckSharedMemory(limits),
              OneFinding(kSlow, "/dev/shm is not there", "mount"));
}

TEST(CheckCoresTest, AffinityAndQuota) {
  ProcessorFacts facts;
  facts.cores = 64;
  facts.usable_cores = 64;
  EXPECT_THAT(CheckCores(facts, Ranks(64)),
              OneFinding(kFine, "64 of 64 cores"));
  facts.usable_cores = 4;
  EXPECT_THAT(CheckCores(facts, Ranks(2)),
              OneFinding(kFine, "4 of 64 cores (its affinity)"));
  facts.quota = 1.5;
  EXPECT_THAT(CheckCores(facts, Ranks(2)),
              OneFinding(kSlow,
                         "1.5 of 64 cores (the control group's quota), and "
                         "2 ranks",
                         "docker run --cpus"));
}

TEST(CheckThreadsTest, TheControlGroupsLimit) {
  LimitFacts limits;
  ProcessorFacts facts;
  facts.usable_cores = 8;
  EXPECT_THAT(CheckThreads(limits, facts, Ranks(2)), ElementsAre());
  limits.tasks_left = 40;
  EXPECT_THAT(CheckThreads(limits, facts, Ranks(2)),
              OneFinding(kFine, "allows 40 more threads"));
  limits.tasks_left = 39;
  EXPECT_THAT(CheckThreads(limits, facts, Ranks(2)),
              OneFinding(kStopped, "has about 40", "pids-limit"));
}

TEST(CheckLoadTest, OtherProgramsUseTheCores) {
  ProcessorFacts facts;
  facts.cores = 2;
  facts.load.average = 1;
  EXPECT_THAT(CheckLoad(facts, Ranks(1)), ElementsAre());
  facts.load.average = 5.04;
  EXPECT_THAT(
      CheckLoad(facts, Ranks(1)),
      OneFinding(kSlow, "5.0 threads use the 2 cores", "--intra_op_threads"));
  EXPECT_THAT(CheckLoad(facts, {/*on_gpus=*/true, 1, 1}), ElementsAre());
}

TEST(CheckMemoryTest, LimitAndRest) {
  ProcessorFacts facts;
  facts.available_memory = uint64_t{1} << 30;
  EXPECT_THAT(CheckMemory(facts, Ranks(3)),
              OneFinding(kFine, "1 GiB of memory are left"));
  EXPECT_THAT(
      CheckMemory(facts, Ranks(4)),
      OneFinding(kStopped, "1 GiB of memory are left", "300 MiB a rank"));
  facts.available_memory -= 1;
  facts.memory_limit = uint64_t{4} << 30;
  EXPECT_THAT(CheckMemory(facts, Ranks(3)),
              OneFinding(kSlow, "limit is 4 GiB", "raise"));
  facts.available_memory = uint64_t{600} << 20;
  EXPECT_THAT(CheckMemory(facts, Ranks(2)),
              OneFinding(kSlow, "600 MiB of memory", "raise"));
  facts.available_memory -= 1;
  EXPECT_THAT(CheckMemory(facts, Ranks(2)),
              OneFinding(kStopped, "limit is 4 GiB", "raise"));
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
              OneFinding(kFine, "avx2"));
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
              OneFinding(kFine, "node, stands for 10.0.0.7"));
  facts.address = "127.0.1.1";
  EXPECT_THAT(CheckNetwork(facts, Ranks(1)), OneFinding(kFine, "127.0.1.1"));
  EXPECT_THAT(CheckNetwork(facts, Ranks(1, 2)),
              OneFinding(kSlow, "cannot reach", "--master_addr"));
  facts.address = "";
  EXPECT_THAT(CheckNetwork(facts, Ranks(1)), OneFinding(kFine, "no address"));
  EXPECT_THAT(CheckNetwork(facts, Ranks(1, 2)),
              OneFinding(kSlow, "no address", "--master_addr"));
}

}  // namespace
}  // namespace tandem::checks_test
