// Failures of a group: ranks leave notes of what failed on a store, so that
// whoever is silent can be told by name.

#ifndef TANDEM_CORE_HEALTH_GROUP_FAILURES_H_
#define TANDEM_CORE_HEALTH_GROUP_FAILURES_H_

#include <chrono>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "core/health/group_member.h"

namespace tandem {

// Each of these makes a number of operations on the store that does not depend
// on how many ranks there are: notes are lists that are read in one piece.

// What the ranks of a group, and of the job that it is part of, say about the
// end of it.
struct Failures {
  // The first that gave up, and why: "rank 1 gave up: disk full". Else empty.
  std::string gave_up;
  // "not heard of: rank 2; rank 0 failed in barrier #7", or who serves the
  // store, if that is silent (core/store/server.h). A rank that failed in
  // another group was heard of. Empty when somebody gave up.
  std::string others;
};

// Notes on the store that this rank failed in `operation`, calls `then`, gives
// the others `patience` to note theirs, and returns what they did. If it
// `asks_job`, and all ranks of the group were heard of, the job's ranks have as
// long again: one that waits in vain may wait for one that waits for another.
// Takes 4 s and four times `patience` at most, whatever the store does.
Failures ReportFailure(const GroupMember& member, const std::string& operation,
                       bool asks_job, std::chrono::milliseconds patience,
                       absl::FunctionRef<void()> then);

// Notes on the store that this rank gives up, and why. Takes 2 s at most.
void ReportGivingUp(const GroupMember& member, const std::string& reason);

// After ReportGivingUp: rank 0, which may serve the store, stays until the
// others have read the note, or for so long (twice that in a part of the job);
// other ranks return at once.
void AwaitListeners(const GroupMember& member,
                    std::chrono::milliseconds patience);

// The same of a rank that was told of a failure and ends because of it.
void AwaitFailureRead(const GroupMember& member,
                      std::chrono::milliseconds patience);

// Whether a rank of the group has called one of the first two. Throws what the
// store throws.
bool HasFailedRank(c10d::Store& store);

}  // namespace tandem

#endif  // TANDEM_CORE_HEALTH_GROUP_FAILURES_H_
