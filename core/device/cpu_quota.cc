#include "core/device/cpu_quota.h"

#include <algorithm>
#include <fstream>

namespace tandem {
namespace {

double Ratio(double quota, double period) {
  return quota > 0 && period > 0 ? quota / period : kNoCpuQuota;
}

// "150000 100000", or "max 100000".
double Version2(const std::string& root) {
  std::ifstream file(root + "/cpu.max");
  double quota = 0;
  double period = 0;
  return file >> quota >> period ? Ratio(quota, period) : kNoCpuQuota;
}

// A quota of -1 is none.
double Version1(const std::string& root) {
  std::ifstream quota_file(root + "/cpu/cpu.cfs_quota_us");
  std::ifstream period_file(root + "/cpu/cpu.cfs_period_us");
  double quota = 0;
  double period = 0;
  return quota_file >> quota && period_file >> period ? Ratio(quota, period)
                                                      : kNoCpuQuota;
}

}  // namespace

double CpuQuota(const std::string& cgroup_root) {
  return std::min(Version2(cgroup_root), Version1(cgroup_root));
}

}  // namespace tandem
