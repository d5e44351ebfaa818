// Host resources: memory, processors and tasks that this process may use, by
// its control groups; how busy the host is, and which instructions it has.

#ifndef TANDEM_CORE_DEVICE_HOST_RESOURCES_H_
#define TANDEM_CORE_DEVICE_HOST_RESOURCES_H_

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace tandem {

// Control group: where the kernel shows the limits of this process.

struct ControlGroups {
  std::string root = "/sys/fs/cgroup";
  std::string membership = "/proc/self/cgroup";
};

// Folders of the group that this process is in and of all that it lies in, up
// to the one that a container sees as its own: each one's limits hold. Folders
// that exist, of version 2, and of version 1's hierarchy of `controller`
// ("memory"), whose files have other names.
std::vector<std::string> FoldersOfVersion2(const ControlGroups& groups);
std::vector<std::string> FoldersOfVersion1(const ControlGroups& groups,
                                           const std::string& controller);

// Available memory: how much this process may still take.

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

// CPU quota: how much processor time this process may use.

constexpr double kNoCpuQuota = std::numeric_limits<double>::infinity();

// Processors that the control group grants, such as 1.5: the least of what
// version 2 (cpu.max) and version 1 (cpu.cfs_quota_us) say of it and of those
// that it lies in. kNoCpuQuota when nothing does.
double CpuQuota(const ControlGroups& groups = {});

// Task limit: how many threads and processes this process's group may have.

constexpr uint64_t kNoTaskLimit = std::numeric_limits<uint64_t>::max();

// How many more the control group allows, and those that it lies in: the least
// of what pids.max leaves beside pids.current. kNoTaskLimit where none has a
// limit.
uint64_t TasksLeft(const ControlGroups& groups = {});

// Machine load: how busy this machine's cores are, whoever uses them.

struct MachineLoad {
  // Threads that ran, or waited for a core or a disk, on average over the last
  // minute.
  double average = 0;
  // Threads that run or wait for a core now, without the one that asks.
  int others_now = 0;
};

// Zeros where the kernel does not say.
MachineLoad ReadMachineLoad(const std::string& loadavg = "/proc/loadavg");

// Whether programs compete for the cores: others use more than half of them,
// now and for a while.
bool IsBusy(const MachineLoad& load, int cores);

// Whether this machine's processor has the instructions, by LibTorch's name of
// them: "avx2", "avx512_bf16", "amx_bf16", "amx_fp16".
// False for names that it does not know.
bool ProcessorHas(absl::string_view instructions);

// "Intel Xeon".
std::string ProcessorName();

// "Intel Xeon (avx2, avx512_f, avx512_bf16, amx_bf16)": with those of the
// instructions that it has for which products and other kernels are written.
std::string DescribeProcessor();

}  // namespace tandem

#endif  // TANDEM_CORE_DEVICE_HOST_RESOURCES_H_
