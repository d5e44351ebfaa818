#include "core/device/host_resources.h"

#include <ATen/cpu/Utils.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <system_error>
#include <unordered_map>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace tandem {
namespace {

// The path of the group, by a line "4:cpu,cpuacct:/PATH"; of version 2
// "0::/PATH". Nothing: no such hierarchy is said.
std::optional<std::string> GroupPath(const std::string& membership,
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
  return FoldersUpTo(groups.root,
                     GroupPath(groups.membership, "").value_or(""));
}

std::vector<std::string> FoldersOfVersion1(const ControlGroups& groups,
                                           const std::string& controller) {
  return FoldersUpTo(absl::StrCat(groups.root, "/", controller),
                     GroupPath(groups.membership, controller).value_or(""));
}

namespace {

// Where one version of control groups says it, in a group's folder.
struct MemoryFiles {
  const char* limit;
  const char* used;
  const char* prefix;  // in memory.stat, of what counts groups below it, too
};

constexpr MemoryFiles kVersion2 = {"/memory.max", "/memory.current", ""};
constexpr MemoryFiles kVersion1 = {"/memory.limit_in_bytes",
                                   "/memory.usage_in_bytes", "total_"};

// kNoMemoryLimit where there is no such file, "max" in it, or what version 1
// says instead: the greatest number of pages.
uint64_t NumberIn(const std::string& path) {
  uint64_t number = 0;
  const bool found = static_cast<bool>(std::ifstream(path) >> number);
  return found && number < uint64_t{1} << 62 ? number : kNoMemoryLimit;
}

// The sum of the lines "NAME VALUE" with one of these names.
uint64_t StatSum(const std::string& path, const std::string& one,
                 const std::string& other) {
  std::ifstream file(path);
  uint64_t sum = 0;
  uint64_t value = 0;
  for (std::string name; file >> name >> value;) {
    if (name == one || name == other) sum += value;
  }
  return sum;
}

uint64_t GroupLimit(const std::string& folder, const MemoryFiles& files) {
  return NumberIn(folder + files.limit);
}

uint64_t LeftIn(const std::string& folder, const MemoryFiles& files) {
  const uint64_t limit = GroupLimit(folder, files);
  if (limit == kNoMemoryLimit) return kNoMemoryLimit;
  const uint64_t used = NumberIn(folder + files.used);
  if (used == kNoMemoryLimit) return limit;
  const std::string prefix = files.prefix;
  const uint64_t reclaimable =
      StatSum(folder + "/memory.stat", prefix + "inactive_file",
              prefix + "active_file");
  const uint64_t held = used - std::min(used, reclaimable);
  return limit - std::min(limit, held);
}

// "MemAvailable:   123 kB"
uint64_t LeftOnMachine(const std::string& meminfo) {
  std::ifstream file(meminfo);
  for (std::string word; file >> word;) {
    uint64_t kibibytes = 0;
    if (word == "MemAvailable:" && file >> kibibytes) return kibibytes << 10;
  }
  return kNoMemoryLimit;  // a kernel older than 3.14
}

// The least of what `of` gives for each group that this process is in.
uint64_t Least(const ControlGroups& groups,
               uint64_t (*of)(const std::string& folder,
                              const MemoryFiles& files)) {
  uint64_t least = kNoMemoryLimit;
  for (const std::string& folder : FoldersOfVersion2(groups)) {
    least = std::min(least, of(folder, kVersion2));
  }
  for (const std::string& folder : FoldersOfVersion1(groups, "memory")) {
    least = std::min(least, of(folder, kVersion1));
  }
  return least;
}

}  // namespace

uint64_t MemoryLimit(const ControlGroups& groups) {
  return Least(groups, &GroupLimit);
}

uint64_t AvailableMemory(const ControlGroups& groups,
                         const std::string& meminfo) {
  return std::min(LeftOnMachine(meminfo), Least(groups, &LeftIn));
}

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

namespace {

// Both versions have these files; "max" is no limit.
uint64_t TasksLeftIn(const std::string& folder) {
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
    least = std::min(least, TasksLeftIn(folder));
  }
  for (const std::string& folder : FoldersOfVersion1(groups, "pids")) {
    least = std::min(least, TasksLeftIn(folder));
  }
  return least;
}

// "1.82 2.24 2.43 3/195 9663": the fourth has who is asking among its three.
MachineLoad ReadMachineLoad(const std::string& loadavg) {
  std::ifstream file(loadavg);
  double last_minute = 0;
  double ignored = 0;
  int running = 0;
  if (!(file >> last_minute >> ignored >> ignored >> running)) return {};
  return {last_minute, std::max(0, running - 1)};
}

bool IsBusy(const MachineLoad& load, int cores) {
  return load.average > cores / 2.0 && load.others_now >= (cores + 1) / 2;
}

namespace {

const std::unordered_map<std::string, c10::IValue>& Capabilities() {
  static const auto* const capabilities =
      new std::unordered_map<std::string, c10::IValue>(
          at::cpu::get_cpu_capabilities());
  return *capabilities;
}

}  // namespace

bool ProcessorHas(absl::string_view instructions) {
  const auto found = Capabilities().find(std::string(instructions));
  return found != Capabilities().end() && found->second.isBool() &&
         found->second.toBool();
}

std::string ProcessorName() {
  const auto found = Capabilities().find("cpu_name");
  return found != Capabilities().end() && found->second.isString()
             ? found->second.toStringRef()
             : "unknown";
}

std::string DescribeProcessor() {
  std::vector<std::string> known;
  for (const char* each :
       {"avx2", "avx512_f", "avx512_bf16", "amx_bf16", "amx_fp16"}) {
    if (ProcessorHas(each)) known.push_back(each);
  }
  return absl::StrCat(ProcessorName(), " (", absl::StrJoin(known, ", "), ")");
}

}  // namespace tandem
