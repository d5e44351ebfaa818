// Available memory: how much this process may still take.

#ifndef TANDEM_CORE_DEVICE_AVAILABLE_MEMORY_H_
#define TANDEM_CORE_DEVICE_AVAILABLE_MEMORY_H_

#include <cstdint>
#include <limits>
#include <string>

#include "core/device/control_group.h"

namespace tandem {

constexpr uint64_t kNoMemoryLimit = std::numeric_limits<uint64_t>::max();

// Bytes that the control group grants: the least of what version 2 (memory.max)
// and version 1 (memory.limit_in_bytes) say of it and of those that it lies in.
// kNoMemoryLimit when nothing does.
uint64_t MemoryLimit(const ControlGroups& groups = {});

// Bytes that the machine (MemAvailable) and the control groups have left. What
// a group holds of files' contents counts as left: the kernel drops it when
// memory is asked for, and a job that has read or written more than its limit
// has hardly anything else. Reads some files of the kernel: tens of
// microseconds for each group.
uint64_t AvailableMemory(const ControlGroups& groups = {},
                         const std::string& meminfo = "/proc/meminfo");

}  // namespace tandem

#endif  // TANDEM_CORE_DEVICE_AVAILABLE_MEMORY_H_
