// Who is here: ranks leave their names on a store, so that what is missing can
// be told by name when a wait ends in vain.

#ifndef TANDEM_CORE_ROLL_CALL_H_
#define TANDEM_CORE_ROLL_CALL_H_

#include <chrono>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "core/group_member.h"

namespace tandem {

// Waits until all ranks of the group have called this. DeadlineExceeded after
// `timeout` names those that have not; AlreadyExists when this rank has called
// it before; else what is wrong with the store, and who serves it.
absl::Status MeetAtStore(const GroupMember& member,
                         std::chrono::milliseconds timeout);

// What the ranks of a group, and of the job that it is part of, say about the
// end of it.
struct Failures {
  // The first that gave up, and why: "rank 1 gave up: disk full". Else empty.
  std::string gave_up;
  // "not heard of: rank 2; rank 0 failed in barrier #7", or who serves the
  // store, if that is silent (core/store_server.h). A rank that failed in
  // another group was heard of. Empty when somebody gave up.
  std::string others;
};

// Notes on the store that this rank failed in `operation`, calls `then`, gives
// the others `patience` to note theirs, and returns what they did. If it
// `asks_job`, and all ranks of the group were heard of, the job's ranks have as
// long again: one that waits in vain may wait for one that waits for another.
// Takes 4 s and four times `patience` at most, whatever the store does.
Failures TellFailure(const GroupMember& member, const std::string& operation,
                     bool asks_job, std::chrono::milliseconds patience,
                     absl::FunctionRef<void()> then);

// Notes on the store that this rank gives up, and why. Takes 2 s at most.
void TellGivingUp(const GroupMember& member, const std::string& reason);

// After TellGivingUp: rank 0, which may serve the store, stays until the others
// have read the note, or for so long (twice that in a part of the job); other
// ranks return at once.
void AwaitListeners(const GroupMember& member,
                    std::chrono::milliseconds patience);

// Whether a rank has called one of these two. Throws what the store throws.
bool SomebodyFailed(c10d::Store& store, int size);

// Which rank of the job was the first to note a failure in one of its groups:
// "rank 0 failed in barrier #7 of group "world"", "rank 3 gave up: disk full";
// empty: none. Throws what the store throws.
std::string FailureInJob(const GroupMember& member);

// "rank 3", "ranks 1, 2".
std::string RankList(const std::vector<int>& ranks);

}  // namespace tandem

#endif  // TANDEM_CORE_ROLL_CALL_H_
