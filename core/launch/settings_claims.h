// Claims that launch flags make about a process's place among the ranks.

#ifndef TANDEM_CORE_LAUNCH_SETTINGS_CLAIMS_H_
#define TANDEM_CORE_LAUNCH_SETTINGS_CLAIMS_H_

#include "absl/status/statusor.h"
#include "core/launch/claims.h"
#include "core/launch/resolve_launch.h"

namespace tandem {

// Each with its flag as the source. InvalidArgument for a --dist_url that is
// none, and for flags that contradict it.
absl::StatusOr<LaunchClaims> ClaimsOfFlags(const LaunchSettings& flags);

}  // namespace tandem

#endif  // TANDEM_CORE_LAUNCH_SETTINGS_CLAIMS_H_
