// Cases that are chosen by name.

#ifndef TANDEM_TOOLS_BENCH_CASES_AMONG_H_
#define TANDEM_TOOLS_BENCH_CASES_AMONG_H_

#include <algorithm>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tandem {

// Of `all`, which have a `name` ("MODEL/...") and a `bench` (the model's),
// those of these names, in the order of `all`; "MODEL" stands for all of a
// model's. All of them for an empty list. InvalidArgument for an unknown name.
template <typename Case>
absl::StatusOr<std::vector<Case>> CasesAmong(
    const std::vector<Case>& all, const std::vector<std::string>& names) {
  if (names.empty()) return all;
  std::vector<bool> used(names.size());
  std::vector<Case> chosen;
  for (const Case& each : all) {
    bool wanted = false;
    for (size_t i = 0; i < names.size(); ++i) {
      if (names[i] != each.name && names[i] != each.bench.name) continue;
      wanted = used[i] = true;
    }
    if (wanted) chosen.push_back(each);
  }
  const auto unused = std::find(used.begin(), used.end(), false);
  if (unused == used.end()) return chosen;
  const auto name_of = [](std::string* out, const Case& each) {
    out->append(each.name);
  };
  return absl::InvalidArgumentError(absl::StrCat(
      "unknown case '", names[static_cast<size_t>(unused - used.begin())],
      "': known are ", absl::StrJoin(all, ", ", name_of),
      ", and the models alone"));
}

// Those that follow each other and have the same model, which share processes
// or files.
template <typename Case>
std::vector<std::vector<Case>> ByModel(const std::vector<Case>& cases) {
  std::vector<std::vector<Case>> models;
  for (const Case& each : cases) {
    const bool same =
        !models.empty() && models.back().front().bench.name == each.bench.name;
    if (!same) models.emplace_back();
    models.back().push_back(each);
  }
  return models;
}

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_CASES_AMONG_H_
