#include "tools/diagnosis/gpu_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/diagnosis/findings.h"

namespace tandem::gpu_checks_test {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr Severity kFine = Severity::kFine;
constexpr Severity kSlow = Severity::kSlow;
constexpr Severity kStopped = Severity::kStopped;

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
  EXPECT_THAT(
      CheckDriver(Machine(1), OnGpus(1)),
      ElementsAre(IsFinding(kFine, "580.65.06 runs CUDA up to 13.0", "")));
}

TEST(CheckDriverTest, AnOldDriverStopsGpusAlone) {
  CudaFacts facts = Machine(1);
  facts.driver.version = "550.54.15";
  facts.driver.cuda = 12040;
  const char* what =
      "550.54.15 runs CUDA up to 12.4, and this program is of 13.0";
  EXPECT_THAT(CheckDriver(facts, OnGpus(1)),
              ElementsAre(IsFinding(kStopped, what, "driver 580 or newer")));
  EXPECT_THAT(CheckDriver(facts, {}), ElementsAre(IsFinding(kFine, what, "")));
}

// A driver of CUDA 13.0 runs programs of 13.2, too.
TEST(CheckDriverTest, TheMajorVersionDecides) {
  CudaFacts facts = Machine(1);
  facts.runtime = 13020;
  EXPECT_THAT(CheckDriver(facts, OnGpus(1)),
              ElementsAre(IsFinding(kFine, "is of 13.2", "")));
}

TEST(CheckDriverTest, NoDriver) {
  CudaFacts facts;
  facts.driver.missing = "it is not there";
  EXPECT_THAT(CheckDriver(facts, {}),
              ElementsAre(IsFinding(kFine, "it is not there", "")));
  EXPECT_THAT(
      CheckDriver(facts, OnGpus(1)),
      ElementsAre(IsFinding(kStopped, "it is not there", "--gpus=all")));
  EXPECT_THAT(CheckBuild(facts, OnGpus(1)), IsEmpty());
}

TEST(CheckBuildTest, GpusThatTheBuildCannotUse) {
  CudaFacts facts = Machine(2);
  facts.in_build = false;
  EXPECT_THAT(
      CheckBuild(facts, OnGpus(1)),
      ElementsAre(IsFinding(kStopped, "built without CUDA", "--config=cuda")));
  EXPECT_THAT(CheckBuild(facts, {}),
              ElementsAre(IsFinding(kSlow, "2 GPUs", "")));
}

TEST(CheckBuildTest, RanksNeedAGpuEach) {
  CudaFacts facts = Machine(4);
  EXPECT_THAT(CheckBuild(facts, OnGpus(4)),
              ElementsAre(IsFinding(kFine, "see 4 of the machine's 4", "")));
  EXPECT_THAT(
      CheckBuild(facts, OnGpus(5)),
      ElementsAre(IsFinding(kStopped, "5 ranks need", "start fewer ranks")));
  facts.visible = "0";
  facts.usable_gpus = 1;
  EXPECT_THAT(
      CheckBuild(facts, OnGpus(1)),
      ElementsAre(IsFinding(kFine, "CUDA_VISIBLE_DEVICES is \"0\"", "")));
  EXPECT_THAT(CheckBuild(facts, OnGpus(4)),
              ElementsAre(IsFinding(kStopped, "see 1 of the machine's 4 GPUs",
                                    "name more in CUDA_VISIBLE_DEVICES")));
}

TEST(CheckGpusTest, AGoodGpuIsOneLine) {
  EXPECT_THAT(CheckGpus(Machine(1), OnGpus(1)),
              ElementsAre(IsFinding(
                  kFine, "GPU 0, H100 (compute capability 9.0, 80 GiB)", "")));
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
              ElementsAre(IsFinding(kFine, "NCCL 2.28.9", "")));
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

}  // namespace
}  // namespace tandem::gpu_checks_test
