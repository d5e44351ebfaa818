#include "core/launch/restart_count.h"

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace tandem {
namespace {

absl::StatusOr<int> CountIn(const Environment& env, const std::string& name) {
  TANDEM_ASSIGN_OR_RETURN(const std::optional<int> count, env.GetInt(name));
  if (count.value_or(0) >= 0) return count.value_or(0);
  return absl::InvalidArgumentError(
      absl::StrCat(name, "=", *count, " must be at least 0"));
}

}  // namespace

absl::StatusOr<RestartCount> RestartCountOf(const Environment& env) {
  RestartCount count;
  TANDEM_ASSIGN_OR_RETURN(count.done,
                          CountIn(env, "TORCHELASTIC_RESTART_COUNT"));
  TANDEM_ASSIGN_OR_RETURN(count.most,
                          CountIn(env, "TORCHELASTIC_MAX_RESTARTS"));
  return count;
}

}  // namespace tandem
