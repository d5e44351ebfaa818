// Variable claims: what single environment variables say of a launch. Pure.

#ifndef TANDEM_CORE_LAUNCH_VARIABLE_CLAIMS_H_
#define TANDEM_CORE_LAUNCH_VARIABLE_CLAIMS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/base/environment.h"
#include "core/launch/claims.h"

namespace tandem {

// The claim that `name` makes in `env`, if any.
absl::StatusOr<std::optional<Claim<int>>> IntClaim(const Environment& env,
                                                   const std::string& name);
// The claim of the first of `names` that is set.
absl::StatusOr<std::optional<Claim<int>>> FirstIntClaim(
    const Environment& env, const std::vector<std::string>& names);

// The claim of a variable that names a host.
std::optional<Claim<std::string>> HostClaim(const Environment& env,
                                            const std::string& name);

// The value of the first of `names` that is set; "" where none is.
std::string FirstOf(const Environment& env,
                    const std::vector<std::string>& names);

// A port that all ranks of one job compute alike, from what they all know of
// it: 20000 + FNV-1a(job) mod 10000, below Linux's ephemeral ports.
int PortOfJob(absl::string_view job);

}  // namespace tandem

#endif  // TANDEM_CORE_LAUNCH_VARIABLE_CLAIMS_H_
