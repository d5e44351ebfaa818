#include "parallel/step/parts/step_flags.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/substitute.h"
#include "parallel/step/parts/step_parts.h"
#include "parallel/step/step_part_row.h"

namespace tandem {
namespace {

// Whether `value` is what `condition`, "=on" or ">1", asks for; "": any is.
bool Meets(const std::string& value, absl::string_view condition) {
  if (condition.empty()) return true;
  const absl::string_view bound = condition.substr(1);
  if (condition.front() == '=') return value == bound;
  double given = 0, least = 0;
  return absl::SimpleAtod(value, &given) && absl::SimpleAtod(bound, &least) &&
         given > least;
}

// The name and value of `flag` where it is given so; null: it is not.
const NamedValues::value_type* Find(const NamedValues& given,
                                    absl::string_view flag) {
  const size_t end = std::min(flag.find_first_of("=>"), flag.size());
  const auto found = given.find(std::string(flag.substr(0, end)));
  if (found == given.end()) return nullptr;
  return Meets(found->second, flag.substr(end)) ? &*found : nullptr;
}

std::string AsGiven(const NamedValues::value_type& flag) {
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

std::set<std::string> StepStateFlags() {
  std::set<std::string> flags;
  for (const StepPartRow* row : StepPartRows()) {
    flags.insert(row->state_flags.begin(), row->state_flags.end());
  }
  return flags;
}

}  // namespace tandem
