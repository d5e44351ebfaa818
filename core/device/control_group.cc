#include "core/device/control_group.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace tandem {
namespace {

// The path of the group, by a line "4:cpu,cpuacct:/PATH"; of version 2
// "0::/PATH". Nothing: no such hierarchy is said.
std::optional<std::string> PathOf(const std::string& membership,
                                  absl::string_view controller) {
  std::ifstream file(membership);
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string> fields =
        absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3 || !absl::StartsWith(fields[2], "/")) continue;
    const std::vector<std::string> controllers = absl::StrSplit(fields[1], ',');
    if (absl::c_linear_search(controllers, controller)) return fields[2];
  }
  return std::nullopt;
}

// Without a cgroup namespace a container is told the host's path, of which it
// sees nothing; and one that it was moved out of begins with "/..".
std::vector<std::string> FoldersUpTo(const std::string& root,
                                     std::string path) {
  std::vector<std::string> folders;
  std::error_code error;
  while (path.size() > 1 && !absl::StrContains(path, "..")) {
    const std::string folder = absl::StrCat(root, path);
    if (std::filesystem::is_directory(folder, error)) folders.push_back(folder);
    path.resize(path.rfind('/'));
  }
  folders.push_back(root);
  return folders;
}

}  // namespace

std::vector<std::string> FoldersOfVersion2(const ControlGroups& groups) {
  return FoldersUpTo(groups.root, PathOf(groups.membership, "").value_or(""));
}

std::vector<std::string> FoldersOfVersion1(const ControlGroups& groups,
                                           const std::string& controller) {
  return FoldersUpTo(absl::StrCat(groups.root, "/", controller),
                     PathOf(groups.membership, controller).value_or(""));
}

}  // namespace tandem
