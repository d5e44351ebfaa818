#include "core/device/task_limit.h"

#include <algorithm>
#include <fstream>
#include <string>

namespace tandem {
namespace {

// Both versions have these files; "max" is no limit.
uint64_t LeftIn(const std::string& folder) {
  uint64_t most = 0;
  uint64_t now = 0;
  if (!(std::ifstream(folder + "/pids.max") >> most) ||
      !(std::ifstream(folder + "/pids.current") >> now)) {
    return kNoTaskLimit;
  }
  return most - std::min(most, now);
}

}  // namespace

uint64_t TasksLeft(const ControlGroups& groups) {
  uint64_t least = kNoTaskLimit;
  for (const std::string& folder : FoldersOfVersion2(groups)) {
    least = std::min(least, LeftIn(folder));
  }
  for (const std::string& folder : FoldersOfVersion1(groups, "pids")) {
    least = std::min(least, LeftIn(folder));
  }
  return least;
}

}  // namespace tandem
