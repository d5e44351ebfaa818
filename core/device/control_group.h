// Control group: where the kernel shows the limits of this process.

#ifndef TANDEM_CORE_DEVICE_CONTROL_GROUP_H_
#define TANDEM_CORE_DEVICE_CONTROL_GROUP_H_

#include <string>
#include <vector>

namespace tandem {

struct ControlGroups {
  std::string root = "/sys/fs/cgroup";
  std::string membership = "/proc/self/cgroup";
};

// Folders of the group that this process is in and of all that it lies in, up
// to the one that a container sees as its own: each one's limits hold. Of
// version 2, and of version 1's hierarchy of `controller` ("memory"), whose
// files have other names; those that are there.
std::vector<std::string> FoldersOfVersion2(const ControlGroups& groups);
std::vector<std::string> FoldersOfVersion1(const ControlGroups& groups,
                                           const std::string& controller);

}  // namespace tandem

#endif  // TANDEM_CORE_DEVICE_CONTROL_GROUP_H_
