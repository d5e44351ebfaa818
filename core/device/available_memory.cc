#include "core/device/available_memory.h"

#include <algorithm>
#include <fstream>

namespace tandem {
namespace {

// Where one version of control groups says it, below the group's folder.
struct MemoryFiles {
  const char* limit;
  const char* used;
  const char* statistics;
  const char* prefix;  // of what counts groups below this one, too
};

constexpr MemoryFiles kVersions[] = {
    {"/memory.max", "/memory.current", "/memory.stat", ""},
    {"/memory/memory.limit_in_bytes", "/memory/memory.usage_in_bytes",
     "/memory/memory.stat", "total_"},
};

// kNoMemoryLimit where there is no such file, "max" in it, or what version 1
// says instead: the greatest number of pages.
uint64_t NumberIn(const std::string& path) {
  uint64_t number = 0;
  const bool found = static_cast<bool>(std::ifstream(path) >> number);
  return found && number < uint64_t{1} << 62 ? number : kNoMemoryLimit;
}

// The sum of the lines "NAME VALUE" with one of these names.
uint64_t SumOf(const std::string& path, const std::string& one,
               const std::string& other) {
  std::ifstream file(path);
  uint64_t sum = 0;
  uint64_t value = 0;
  for (std::string name; file >> name >> value;) {
    if (name == one || name == other) sum += value;
  }
  return sum;
}

uint64_t LeftInGroup(const std::string& root, const MemoryFiles& files) {
  const uint64_t limit = NumberIn(root + files.limit);
  if (limit == kNoMemoryLimit) return kNoMemoryLimit;
  const uint64_t used = NumberIn(root + files.used);
  if (used == kNoMemoryLimit) return limit;
  const std::string prefix = files.prefix;
  const uint64_t reclaimable =
      SumOf(root + files.statistics, prefix + "inactive_file",
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

}  // namespace

uint64_t MemoryLimit(const std::string& cgroup_root) {
  uint64_t limit = kNoMemoryLimit;
  for (const MemoryFiles& files : kVersions) {
    limit = std::min(limit, NumberIn(cgroup_root + files.limit));
  }
  return limit;
}

uint64_t AvailableMemory(const std::string& cgroup_root,
                         const std::string& meminfo) {
  uint64_t left = LeftOnMachine(meminfo);
  for (const MemoryFiles& files : kVersions) {
    left = std::min(left, LeftInGroup(cgroup_root, files));
  }
  return left;
}

}  // namespace tandem
