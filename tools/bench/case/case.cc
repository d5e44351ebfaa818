#include "tools/bench/case/case.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tandem {
namespace {

bool Means(const std::string& name, const Case& each) {
  return name == each.name || name == each.workload.model;
}

absl::Status UnknownCase(const std::string& name,
                         const std::vector<Case>& all) {
  const auto name_of = [](std::string* out, const Case& each) {
    out->append(each.name);
  };
  const bool has_variants = all.front().name != all.front().workload.model;
  return absl::InvalidArgumentError(
      absl::StrCat("unknown case '", name, "': known are ",
                   absl::StrJoin(all, ", ", name_of),
                   has_variants ? ", and the models alone" : ""));
}

}  // namespace

absl::StatusOr<std::vector<Case>> CasesNamed(
    const std::vector<Case>& all, const std::vector<std::string>& names) {
  if (names.empty()) return all;
  for (const std::string& name : names) {
    const bool known =
        std::any_of(all.begin(), all.end(),
                    [&](const Case& each) { return Means(name, each); });
    if (!known) return UnknownCase(name, all);
  }
  std::vector<Case> chosen;
  for (const Case& each : all) {
    const bool wanted =
        std::any_of(names.begin(), names.end(),
                    [&](const std::string& name) { return Means(name, each); });
    if (wanted) chosen.push_back(each);
  }
  return chosen;
}

std::vector<std::vector<Case>> ByModel(const std::vector<Case>& cases) {
  std::vector<std::vector<Case>> models;
  for (const Case& each : cases) {
    if (models.empty() ||
        models.back().front().workload.model != each.workload.model) {
      models.emplace_back();
    }
    models.back().push_back(each);
  }
  return models;
}

}  // namespace tandem
