#include "core/device/cpu_quota.h"

#include <algorithm>
#include <fstream>
#include <string>

namespace tandem {
namespace {

double Ratio(double quota, double period) {
  return quota > 0 && period > 0 ? quota / period : kNoCpuQuota;
}

// "150000 100000", or "max 100000".
double Version2(const std::string& folder) {
  std::ifstream file(folder + "/cpu.max");
  double quota = 0;
  double period = 0;
  return file >> quota >> period ? Ratio(quota, period) : kNoCpuQuota;
}

// A quota of -1 is none.
double Version1(const std::string& folder) {
  std::ifstream quota_file(folder + "/cpu.cfs_quota_us");
  std::ifstream period_file(folder + "/cpu.cfs_period_us");
  double quota = 0;
  double period = 0;
  return quota_file >> quota && period_file >> period ? Ratio(quota, period)
                                                      : kNoCpuQuota;
}

}  // namespace

double CpuQuota(const ControlGroups& groups) {
  double least = kNoCpuQuota;
  for (const std::string& folder : FoldersOfVersion2(groups)) {
    least = std::min(least, Version2(folder));
  }
  for (const std::string& folder : FoldersOfVersion1(groups, "cpu")) {
    least = std::min(least, Version1(folder));
  }
  return least;
}

}  // namespace tandem
