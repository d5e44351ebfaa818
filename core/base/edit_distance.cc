#include "core/base/edit_distance.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/short_list.h"

namespace tandem {
namespace {

// The initials of the words between '_' and '-'.
std::string Initials(absl::string_view name) {
  std::string initials;
  for (const absl::string_view word :
       absl::StrSplit(name, absl::ByAnyChar("_-"), absl::SkipEmpty())) {
    initials += word.front();
  }
  return initials;
}

// The one name that begins or ends with `given`; empty: none or several do.
std::string OnlyWithPart(absl::string_view given,
                         const std::vector<std::string>& known) {
  if (given.size() < 4) return "";
  std::string only;
  for (const std::string& name : known) {
    if (!absl::StartsWith(name, given) && !absl::EndsWith(name, given)) {
      continue;
    }
    if (!only.empty()) return "";
    only = name;
  }
  return only;
}

// The smaller, the nearer is `name` to `given`. A common beginning counts
// twice, so that "llama" is nearer to llama_tiny than to toy.
int Farness(absl::string_view given, absl::string_view name) {
  size_t common = 0;
  while (common < std::min(given.size(), name.size()) &&
         given[common] == name[common]) {
    ++common;
  }
  return EditDistance(given, name) - 2 * static_cast<int>(common);
}

}  // namespace

int EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<int> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    int diagonal = row[0];
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row.back();
}

std::string NearestName(absl::string_view given,
                        const std::vector<std::string>& known) {
  std::string nearest = OnlyWithPart(given, known);
  if (!nearest.empty()) return nearest;
  int least = static_cast<int>(given.size()) / 3 + 2;  // farther is no typing
  for (const std::string& name : known) {
    if (given.size() > 1 && Initials(name) == given) return name;
    const int distance = EditDistance(given, name);
    if (distance >= least) continue;
    least = distance;
    nearest = name;
  }
  return nearest;
}

std::string NamesNear(absl::string_view given,
                      const std::vector<std::string>& known,
                      absl::string_view all) {
  constexpr size_t kMost = 8;
  if (known.size() <= kMost) return ShortList(known, kMost);
  std::vector<std::pair<int, std::string>> names;
  for (const std::string& name : known) {
    names.emplace_back(Farness(given, name), name);
  }
  std::sort(names.begin(), names.end());
  std::vector<std::string> sorted;
  for (const auto& [farness, name] : names) sorted.push_back(name);
  return absl::StrCat(ShortList(sorted, kMost),
                      all.empty() ? "" : absl::StrCat(" (", all, ")"));
}

}  // namespace tandem
