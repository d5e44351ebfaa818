#include "core/device/available_memory.h"

#include <algorithm>
#include <fstream>

namespace tandem {
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

uint64_t LimitOf(const std::string& folder, const MemoryFiles& files) {
  return NumberIn(folder + files.limit);
}

uint64_t LeftIn(const std::string& folder, const MemoryFiles& files) {
  const uint64_t limit = LimitOf(folder, files);
  if (limit == kNoMemoryLimit) return kNoMemoryLimit;
  const uint64_t used = NumberIn(folder + files.used);
  if (used == kNoMemoryLimit) return limit;
  const std::string prefix = files.prefix;
  const uint64_t reclaimable =
      SumOf(folder + "/memory.stat", prefix + "inactive_file",
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
  return Least(groups, &LimitOf);
}

uint64_t AvailableMemory(const ControlGroups& groups,
                         const std::string& meminfo) {
  return std::min(LeftOnMachine(meminfo), Least(groups, &LeftIn));
}

}  // namespace tandem
