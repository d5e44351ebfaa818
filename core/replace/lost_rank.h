// Lost rank: what a launcher tells a job of a rank that has died and is to be
// replaced.

#ifndef TANDEM_CORE_REPLACE_LOST_RANK_H_
#define TANDEM_CORE_REPLACE_LOST_RANK_H_

#include <string>

#include "absl/status/statusor.h"
#include "core/launch/launch.h"

namespace tandem {

// Notes that life `life` of `rank` has ended, and how; what other ranks wait
// for with it ends within a second. Returns whether the job goes on without it:
// it has begun to train and not ended, and a member of its latest generation
// lives (core/replace/job_member.h). Takes seconds at most; an error where the
// store does not answer.
absl::StatusOr<bool> NoteLostRank(const Launch& rank, int life,
                                  const std::string& how);

}  // namespace tandem

#endif  // TANDEM_CORE_REPLACE_LOST_RANK_H_
