#include "tools/report/run_names.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace tandem {
namespace {

using Parts = std::vector<std::string>;

// "metrics" of "metrics.jsonl".
std::string WithoutExtension(const std::string& name) {
  const size_t dot = name.rfind('.');
  return dot == std::string::npos || dot == 0 ? name : name.substr(0, dot);
}

// Folders and the file's name, the last first.
Parts PartsFromTheEnd(const std::string& path) {
  Parts parts = absl::StrSplit(path, '/', absl::SkipEmpty());
  std::reverse(parts.begin(), parts.end());
  if (!parts.empty()) parts.front() = WithoutExtension(parts.front());
  return parts;
}

// How many parts all have alike, from the end on, but not all of any.
size_t CountAlike(const std::vector<Parts>& all) {
  size_t alike = 0;
  while (std::all_of(all.begin(), all.end(), [&](const Parts& parts) {
    return alike + 1 < parts.size() && parts[alike] == all.front()[alike];
  })) {
    ++alike;
  }
  return alike;
}

// The parts from `begin` on, `count` of them at most, as a path.
std::string Name(const Parts& parts, size_t begin, size_t count) {
  const size_t end = std::min(parts.size(), begin + count);
  Parts shown(parts.begin() + std::min(begin, end), parts.begin() + end);
  std::reverse(shown.begin(), shown.end());
  return absl::StrJoin(shown, "/");
}

}  // namespace

std::vector<std::string> RunNames(const std::vector<std::string>& paths) {
  std::vector<Parts> all;
  size_t longest = 1;
  for (const std::string& path : paths) {
    all.push_back(PartsFromTheEnd(path));
    longest = std::max(longest, all.back().size());
  }
  const std::set<std::string> different(paths.begin(), paths.end());
  const size_t begin = different.size() > 1 ? CountAlike(all) : 0;
  std::vector<std::string> names;
  for (size_t count = 1; count <= longest; ++count) {
    names.clear();
    for (const Parts& parts : all) names.push_back(Name(parts, begin, count));
    const std::set<std::string> told(names.begin(), names.end());
    if (told.size() >= different.size()) break;
  }
  // What is the same file, or differs in what names leave out.
  std::set<std::string> taken;
  for (std::string& name : names) {
    const std::string plain = name;
    for (int i = 2; !taken.insert(name).second; ++i) {
      name = absl::StrCat(plain, " (", i, ")");
    }
  }
  return names;
}

}  // namespace tandem
