#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "core/device/host_resources.h"

namespace tandem::cpu_quota_test {
namespace {

// A control group's folder with these files.
class Folder {
 public:
  explicit Folder(const std::string& name)
      : path_(::testing::TempDir() + "/" + name) {
    std::filesystem::create_directories(path_ + "/cpu");
  }
  void Write(const std::string& file, const std::string& text) {
    const std::string path = path_ + "/" + file;
    std::filesystem::create_directories(
        std::filesystem::path(path).parent_path());
    std::ofstream(path) << text << "\n";
  }
  double quota() const { return CpuQuota({path_, path_ + "/membership"}); }

 private:
  const std::string path_;
};

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

}  // namespace
}  // namespace tandem::cpu_quota_test
