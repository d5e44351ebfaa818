#include "core/device/cpu_quota.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

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
    std::ofstream(path_ + "/" + file) << text << "\n";
  }
  double quota() const { return CpuQuota(path_); }

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
  EXPECT_EQ(CpuQuota("/no/such/folder"), kNoCpuQuota);
}

}  // namespace
}  // namespace tandem::cpu_quota_test
