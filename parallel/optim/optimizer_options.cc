#include "parallel/optim/optimizer_options.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace tandem {

absl::Status CheckNotNegative(absl::string_view option, double value) {
  if (value >= 0 && std::isfinite(value)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(option, " is ", value, "; it must be a number >= 0"));
}

absl::Status CheckPositive(absl::string_view option, double value) {
  if (value > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      option, " must be greater than 0, but ", value, " was given"));
}

absl::Status CheckBelowOne(absl::string_view option, double value) {
  if (value >= 0 && value < 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(option, " is ", value, "; it must be >= 0 and < 1"));
}

}  // namespace tandem
