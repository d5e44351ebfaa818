#include "parallel/step/parts/step_flags.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/substitute.h"
#include "parallel/step/parts/step_parts.h"
#include "parallel/step/step_part_row.h"

namespace tandem {
namespace {

// The value of `flag`, "name" or "name=value", where it is given so; null: it
// is not.
const std::pair<const std::string, std::string>* Find(const NamedValues& given,
                                                      absl::string_view flag) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(flag, absl::MaxSplits('=', 1));
  const auto found = given.find(std::string(parts.first));
  if (found == given.end()) return nullptr;
  return parts.second.empty() || parts.second == found->second ? &*found
                                                               : nullptr;
}

std::string AsGiven(const std::pair<const std::string, std::string>& flag) {
  return absl::StrCat("--", flag.first, "=", flag.second);
}

}  // namespace

absl::Status CheckStepFlags(const NamedValues& given) {
  for (const StepPartRow* row : StepPartRows()) {
    const auto* const part = Find(given, row->exclusions.flag);
    if (part == nullptr) continue;
    for (const Exclusion& each : row->exclusions.others) {
      const auto* const other = Find(given, each.flag);
      if (other == nullptr) continue;
      return absl::InvalidArgumentError(
          absl::Substitute(each.flag_message, AsGiven(*part), AsGiven(*other),
                           absl::StrCat("--", other->first)));
    }
  }
  return absl::OkStatus();
}

}  // namespace tandem
