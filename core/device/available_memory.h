// Available memory: how much this process may still take.

#ifndef TANDEM_CORE_DEVICE_AVAILABLE_MEMORY_H_
#define TANDEM_CORE_DEVICE_AVAILABLE_MEMORY_H_

#include <cstdint>
#include <limits>
#include <string>

namespace tandem {

constexpr uint64_t kNoMemoryLimit = std::numeric_limits<uint64_t>::max();

// Bytes that the control group grants: the least of what version 2
// (memory.max) and version 1 (memory/memory.limit_in_bytes) say at the group
// that the container sees as its own. kNoMemoryLimit when nothing does.
uint64_t MemoryLimit(const std::string& cgroup_root = "/sys/fs/cgroup");

// Bytes that the machine (MemAvailable) and the control group have left. What
// the group holds of files' contents counts as left: the kernel drops it when
// memory is asked for, and a job that has read or written more than its limit
// has hardly anything else. Reads some files of the kernel: tens of
// microseconds.
uint64_t AvailableMemory(const std::string& cgroup_root = "/sys/fs/cgroup",
                         const std::string& meminfo = "/proc/meminfo");

}  // namespace tandem

#endif  // TANDEM_CORE_DEVICE_AVAILABLE_MEMORY_H_
