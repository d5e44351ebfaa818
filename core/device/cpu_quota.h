// CPU quota: how much processor time this process may use.

#ifndef TANDEM_CORE_DEVICE_CPU_QUOTA_H_
#define TANDEM_CORE_DEVICE_CPU_QUOTA_H_

#include <limits>

#include "core/device/control_group.h"

namespace tandem {

constexpr double kNoCpuQuota = std::numeric_limits<double>::infinity();

// Processors that the control group grants, such as 1.5: the least of what
// version 2 (cpu.max) and version 1 (cpu.cfs_quota_us) say of it and of those
// that it lies in. kNoCpuQuota when nothing does.
double CpuQuota(const ControlGroups& groups = {});

}  // namespace tandem

#endif  // TANDEM_CORE_DEVICE_CPU_QUOTA_H_
