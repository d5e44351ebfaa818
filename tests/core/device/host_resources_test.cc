#include "core/device/host_resources.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

namespace tandem::host_resources_test {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

// A control group's folder, and a machine with 100 GiB left.
class Folder {
 public:
  explicit Folder(const std::string& name)
      : path_(::testing::TempDir() + "/" + name) {
    std::filesystem::create_directories(path_ + "/memory");
    std::filesystem::create_directories(path_ + "/cpu");
    Write("meminfo",
          "MemTotal: 268435456 kB\nMemFree: 1024 kB\n"
          "MemAvailable: 104857600 kB\nBuffers: 7 kB");
  }
  void Write(const std::string& file, const std::string& text) {
    const std::string path = path_ + "/" + file;
    std::filesystem::create_directories(
        std::filesystem::path(path).parent_path());
    std::ofstream(path) << text << "\n";
  }
  double quota() const { return CpuQuota(groups()); }
  uint64_t limit() const { return MemoryLimit(groups()); }
  uint64_t available() const {
    return AvailableMemory(groups(), path_ + "/meminfo");
  }

 private:
  ControlGroups groups() const { return {path_, path_ + "/membership"}; }

  const std::string path_;
};

std::string Bytes(uint64_t gibibytes) {
  return std::to_string(gibibytes * kGiB);
}

TEST(AvailableMemoryTest, WithoutAGroupItIsTheMachines) {
  const Folder folder("none");
  EXPECT_EQ(folder.available(), 100 * kGiB);
  EXPECT_EQ(folder.limit(), kNoMemoryLimit);
}

TEST(AvailableMemoryTest, ContentsOfFilesCountAsLeft) {
  Folder folder("v2");
  folder.Write("memory.max", Bytes(8));
  // The limit is used up, by files that were read.
  folder.Write("memory.current", Bytes(8));
  folder.Write("memory.stat", "anon " + Bytes(2) + "\nfile " + Bytes(6) +
                                  "\nshmem " + Bytes(1) + "\ninactive_file " +
                                  Bytes(4) + "\nactive_file " + Bytes(1));
  EXPECT_EQ(folder.limit(), 8 * kGiB);
  EXPECT_EQ(folder.available(), 5 * kGiB);
}

TEST(AvailableMemoryTest, SharedMemoryAndTheProcessesOwnDoNot) {
  Folder folder("full");
  folder.Write("memory.max", Bytes(8));
  folder.Write("memory.current", Bytes(8));
  folder.Write("memory.stat", "anon " + Bytes(5) + "\nfile " + Bytes(3) +
                                  "\nshmem " + Bytes(3) + "\ninactive_anon " +
                                  Bytes(8) +
                                  "\ninactive_file 0\nactive_file 0");
  EXPECT_EQ(folder.available(), 0U);
}

TEST(AvailableMemoryTest, MoreThanTheLimitIsNothingLeft) {
  Folder folder("lowered");
  folder.Write("memory.max", Bytes(4));
  folder.Write("memory.current", Bytes(8));
  EXPECT_EQ(folder.available(), 0U);
  // Read at another moment, the two files may not agree.
  folder.Write("memory.stat", "inactive_file " + Bytes(9));
  EXPECT_EQ(folder.available(), 4 * kGiB);
}

TEST(AvailableMemoryTest, Version1CountsGroupsBelowItsOwn) {
  Folder folder("v1");
  folder.Write("memory/memory.limit_in_bytes", Bytes(8));
  folder.Write("memory/memory.usage_in_bytes", Bytes(7));
  folder.Write("memory/memory.stat",
               "inactive_file 0\nactive_file 0\ntotal_inactive_file " +
                   Bytes(2) + "\ntotal_active_file " + Bytes(1));
  EXPECT_EQ(folder.limit(), 8 * kGiB);
  EXPECT_EQ(folder.available(), 4 * kGiB);
}

TEST(AvailableMemoryTest, AGroupWithoutALimitHasWhatTheMachineHas) {
  Folder folder("unlimited");
  folder.Write("memory.max", "max");
  folder.Write("memory.current", Bytes(50));
  folder.Write("memory/memory.limit_in_bytes", "9223372036854771712");
  folder.Write("memory/memory.usage_in_bytes", Bytes(50));
  EXPECT_EQ(folder.available(), 100 * kGiB);
  EXPECT_EQ(folder.limit(), kNoMemoryLimit);
}

TEST(AvailableMemoryTest, TheGroupWithTheLeastDecides) {
  Folder folder("nested");
  folder.Write("membership", "0::/job/step");
  folder.Write("job/memory.max", Bytes(16));
  folder.Write("job/memory.current", Bytes(15));  // of several steps
  folder.Write("job/step/memory.max", Bytes(8));
  folder.Write("job/step/memory.current", Bytes(2));
  EXPECT_EQ(folder.limit(), 8 * kGiB);
  EXPECT_EQ(folder.available(), 1 * kGiB);
  folder.Write("job/memory.current", Bytes(3));
  EXPECT_EQ(folder.available(), 6 * kGiB);
}

TEST(AvailableMemoryTest, Version1HasAPathOfItsOwn) {
  Folder folder("nested_v1");
  folder.Write("membership", "4:cpu:/other\n3:memory:/slurm/job_7");
  folder.Write("memory/slurm/job_7/memory.limit_in_bytes", Bytes(2));
  folder.Write("memory/slurm/job_7/memory.usage_in_bytes", Bytes(1));
  EXPECT_EQ(folder.limit(), 2 * kGiB);
  EXPECT_EQ(folder.available(), 1 * kGiB);
}

// Docker's without a namespace: the host's path, whose group is the root here.
TEST(AvailableMemoryTest, APathThatIsNotThereIsTheRoot) {
  Folder folder("container");
  for (const char* path : {"0::/docker/4711", "0::/../../4711", "0::", ""}) {
    folder.Write("membership", path);
    folder.Write("memory.max", Bytes(4));
    folder.Write("memory.current", Bytes(1));
    EXPECT_EQ(folder.available(), 3 * kGiB) << path;
  }
}

TEST(AvailableMemoryTest, ThisMachineHasSome) {
  EXPECT_GT(AvailableMemory(), 0U);
  EXPECT_LT(AvailableMemory(), kNoMemoryLimit);
}

TEST(CpuQuotaTest, Version2) {
  Folder folder("v2");
  folder.Write("cpu.max", "150000 100000");
  EXPECT_EQ(folder.quota(), 1.5);
  folder.Write("cpu.max", "max 100000");
  EXPECT_EQ(folder.quota(), kNoCpuQuota);
}

TEST(CpuQuotaTest, Version1) {
  Folder folder("v1");
  folder.Write("cpu/cpu.cfs_quota_us", "50000");
  folder.Write("cpu/cpu.cfs_period_us", "100000");
  EXPECT_EQ(folder.quota(), 0.5);
  folder.Write("cpu/cpu.cfs_quota_us", "-1");
  EXPECT_EQ(folder.quota(), kNoCpuQuota);
}

TEST(CpuQuotaTest, NoControlGroupsAreNoQuota) {
  EXPECT_EQ(Folder("none").quota(), kNoCpuQuota);
  EXPECT_EQ(CpuQuota({"/no/such/folder", "/no/such/file"}), kNoCpuQuota);
}

// systemd-run -p CPUQuota=, Slurm's task/cgroup: a group within others.
TEST(CpuQuotaTest, TheLeastOfAGroupAndThoseItLiesIn) {
  Folder folder("nested_v2");
  folder.Write("membership", "0::/user.slice/run.scope");
  folder.Write("cpu.max", "max 100000");
  folder.Write("user.slice/cpu.max", "300000 100000");
  EXPECT_EQ(folder.quota(), 3);
  folder.Write("user.slice/run.scope/cpu.max", "100000 100000");
  EXPECT_EQ(folder.quota(), 1);
  folder.Write("user.slice/cpu.max", "50000 100000");
  EXPECT_EQ(folder.quota(), 0.5);
  folder.Write("membership", "0::/other.slice");
  EXPECT_EQ(folder.quota(), kNoCpuQuota);
}

TEST(CpuQuotaTest, Version1NamesTheGroupOfEachController) {
  Folder folder("nested_v1");
  folder.Write("membership",
               "12:memory:/m\n4:cpu,cpuacct:/a/b\n1:name=systemd:/c\n0::/");
  folder.Write("cpu/a/b/cpu.cfs_quota_us", "150000");
  folder.Write("cpu/a/b/cpu.cfs_period_us", "100000");
  folder.Write("cpu/m/cpu.cfs_quota_us", "10000");
  folder.Write("cpu/m/cpu.cfs_period_us", "100000");
  EXPECT_EQ(folder.quota(), 1.5);
}

void Write(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(
      std::filesystem::path(path).parent_path());
  std::ofstream(path) << text << "\n";
}

TEST(TaskLimitTest, TheGroupWithTheFewestLeftDecides) {
  const std::string root = ::testing::TempDir() + "/tasks";
  const ControlGroups groups = {root, root + "/membership"};
  EXPECT_EQ(TasksLeft(groups), kNoTaskLimit);
  Write(groups.membership, "8:pids:/v1\n0::/a/b");
  Write(root + "/a/pids.max", "100");
  Write(root + "/a/pids.current", "90");
  Write(root + "/a/b/pids.max", "max");
  Write(root + "/a/b/pids.current", "5");
  EXPECT_EQ(TasksLeft(groups), 10u);
  Write(root + "/pids/v1/pids.max", "8");
  Write(root + "/pids/v1/pids.current", "6");
  EXPECT_EQ(TasksLeft(groups), 2u);
  Write(root + "/pids/v1/pids.current", "9");  // lowered meanwhile
  EXPECT_EQ(TasksLeft(groups), 0u);
}

MachineLoad Read(const std::string& text) {
  const std::string path = ::testing::TempDir() + "/loadavg";
  std::ofstream(path) << text << "\n";
  return ReadMachineLoad(path);
}

TEST(MachineLoadTest, WhoAsksIsNoneOfTheOthers) {
  const MachineLoad load = Read("1.82 2.24 2.43 3/195 9663");
  EXPECT_EQ(load.average, 1.82);
  EXPECT_EQ(load.others_now, 2);
  EXPECT_EQ(Read("0.00 0.00 0.00 0/195 9663").others_now, 0);
  EXPECT_EQ(ReadMachineLoad("/no/such/file").average, 0);
}

TEST(MachineLoadTest, BusyIsNowAndForAWhile) {
  EXPECT_TRUE(IsBusy({1.5, 1}, 2));
  EXPECT_FALSE(IsBusy({1.5, 0}, 2));  // a job of ours has just ended
  EXPECT_FALSE(IsBusy({0.5, 1}, 2));  // other ranks start with us
  EXPECT_FALSE(IsBusy({5, 5}, 64));
  EXPECT_TRUE(IsBusy({33, 32}, 64));
}

}  // namespace
}  // namespace tandem::host_resources_test
