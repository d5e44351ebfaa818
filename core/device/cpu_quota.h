// CPU quota: how much processor time this process may use.

#ifndef TANDEM_CORE_DEVICE_CPU_QUOTA_H_
#define TANDEM_CORE_DEVICE_CPU_QUOTA_H_

#include <limits>
#include <string>

namespace tandem {

constexpr double kNoCpuQuota = std::numeric_limits<double>::infinity();

// Processors that the control group grants, such as 1.5: the least of what
// version 2 (cpu.max) and version 1 (cpu.cfs_quota_us) say at the group that
// the container sees as its own. kNoCpuQuota when nothing does.
double CpuQuota(const std::string& cgroup_root = "/sys/fs/cgroup");

}  // namespace tandem

#endif  // TANDEM_CORE_DEVICE_CPU_QUOTA_H_
