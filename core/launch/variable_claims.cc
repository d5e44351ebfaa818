#include "core/launch/variable_claims.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/launch/dist_url.h"

namespace tandem {

absl::StatusOr<std::optional<Claim<int>>> IntClaim(const Environment& env,
                                                   const std::string& name) {
  TANDEM_ASSIGN_OR_RETURN(const std::optional<int> value, env.GetInt(name));
  if (!value.has_value()) return std::optional<Claim<int>>();
  return std::optional<Claim<int>>({*value, absl::StrCat(name, "=", *value)});
}

absl::StatusOr<std::optional<Claim<int>>> FirstIntClaim(
    const Environment& env, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    TANDEM_ASSIGN_OR_RETURN(auto claim, IntClaim(env, name));
    if (claim.has_value()) return claim;
  }
  return std::optional<Claim<int>>();
}

std::optional<Claim<std::string>> HostClaim(const Environment& env,
                                            const std::string& name) {
  const std::optional<std::string> value = env.Get(name);
  if (!value.has_value()) return std::nullopt;
  return Claim<std::string>{std::string(WithoutBrackets(*value)),
                            absl::StrCat(name, "=", *value)};
}

std::string FirstOf(const Environment& env,
                    const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (const auto value = env.Get(name); value.has_value()) return *value;
  }
  return "";
}

int PortOfJob(absl::string_view job) {
  uint32_t hash = 2166136261u;
  for (const char c : job) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  }
  return 20000 + static_cast<int>(hash % 10000);
}

}  // namespace tandem
