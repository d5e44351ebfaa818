// Agreement of a job's launchers on the attempt that comes next.

#ifndef TANDEM_CORE_RUN_ATTEMPT_AGREEMENT_H_
#define TANDEM_CORE_RUN_ATTEMPT_AGREEMENT_H_

#include "absl/status/statusor.h"
#include "core/launch/launch.h"

namespace tandem {

// See LauncherOptions::next_attempt. `failed` + 1, unless another node has gone
// further by now: then where it is. `node`: any rank of the node. Takes seconds
// at most; an error where the job's store does not answer.
absl::StatusOr<int> AgreeOnAttempt(const Launch& node, int failed);

}  // namespace tandem

#endif  // TANDEM_CORE_RUN_ATTEMPT_AGREEMENT_H_
