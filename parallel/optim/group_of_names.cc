#include "parallel/optim/group_of_names.h"

#include <algorithm>
#include <utility>

namespace tandem {

OptimizerGroup GroupOfAny(
    OptimizerGroup group,
    std::map<std::string, std::vector<std::string>> names) {
  if (!group || names.empty()) return group;
  return [group = std::move(group),
          names = std::move(names)](const std::string& name) {
    const auto found = names.find(name);
    if (found == names.end()) return group(name);
    int64_t greatest = 0;
    for (const std::string& each : found->second) {
      greatest = std::max(greatest, group(each));
    }
    return greatest;
  };
}

}  // namespace tandem
