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

absl::StatusOr<std::vector<Case>> InDtypes(
    const std::vector<Case>& cases, const std::vector<std::string>& dtypes) {
  for (const std::string& dtype : dtypes) {
    if (dtype == "fp32" || dtype == "bf16") continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--dtypes: unknown '", dtype, "'; known: fp32, bf16"));
  }
  std::vector<Case> all;
  for (const std::vector<Case>& model : ByModel(cases)) {
    for (const std::string& dtype : dtypes) {
      for (Case each : model) {
        each.workload.dtype = dtype;
        if (dtype != "fp32") absl::StrAppend(&each.name, ":", dtype);
        all.push_back(std::move(each));
      }
    }
  }
  return all;
}

std::vector<std::vector<Case>> ByModel(const std::vector<Case>& cases) {
  const auto alike = [](const Workload& a, const Workload& b) {
    return a.model == b.model && a.dtype == b.dtype;
  };
  std::vector<std::vector<Case>> models;
  for (const Case& each : cases) {
    if (models.empty() ||
        !alike(models.back().front().workload, each.workload)) {
      models.emplace_back();
    }
    models.back().push_back(each);
  }
  return models;
}

}  // namespace tandem
