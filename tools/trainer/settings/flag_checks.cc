#include "tools/trainer/settings/flag_checks.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tandem {

absl::Status AtLeast(const char* flag, double given, double least) {
  if (given >= least) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, "=", given, ": must be at least ", least));
}

absl::Status Between(const char* flag, double given, double least,
                     double most) {
  if (given >= least && given <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--", flag, "=", given, ": must be from ", least, " to ", most));
}

absl::Status OneOf(const char* flag, const std::string& given,
                   const std::vector<std::string>& known) {
  for (const std::string& name : known) {
    if (given == name) return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, "=", given,
                   ": unknown; known: ", absl::StrJoin(known, ", ")));
}

absl::Status FirstError(std::initializer_list<absl::Status> checks) {
  for (const absl::Status& check : checks) {
    if (!check.ok()) return check;
  }
  return absl::OkStatus();
}

}  // namespace tandem
