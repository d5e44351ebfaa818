// Rendezvous of a group's ranks: all come to the store, and each tells the
// others one thing.

#ifndef TANDEM_CORE_COMM_MEETING_H_
#define TANDEM_CORE_COMM_MEETING_H_

#include <chrono>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/health/group_member.h"

namespace tandem {

// Waits until all ranks of the group have called this and returns what each
// gave for `mine`, by rank. DeadlineExceeded after `timeout` names those that
// have not; AlreadyExists when this rank has called it before; else what is
// wrong with the store, and who serves it. A handful of operations on the store
// for each rank, however many there are.
absl::StatusOr<std::vector<std::string>> MeetAtStore(
    const GroupMember& member, const std::string& mine,
    std::chrono::milliseconds timeout);

}  // namespace tandem

#endif  // TANDEM_CORE_COMM_MEETING_H_
