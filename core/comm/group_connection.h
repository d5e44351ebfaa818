// Group creation: how a rank comes to be connected with the others of its
// group.

#ifndef TANDEM_CORE_COMM_GROUP_CONNECTION_H_
#define TANDEM_CORE_COMM_GROUP_CONNECTION_H_

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/agreement/agreement.h"
#include "core/backend/communicator_options.h"
#include "core/health/group_member.h"
#include "core/health/job_watch.h"

namespace tandem {

// Agreement of a group's ranks on named values, through the store where they
// meet, before anything is made that depends on these values: CompareValues
// over the ranks of the group, with the same result on each of them. Hashes are
// gathered (core/store/gather.h), and the values themselves only where these
// differ: a rank asks the store for O(1) things.
//
// Once for a group, after MeetAtStore. DeadlineExceeded after `timeout` names
// the ranks that have left nothing; else what is wrong with the store, and who
// serves it.
absl::Status AgreeAtStore(const GroupMember& member, const NamedValues& mine,
                          absl::string_view what,
                          std::chrono::milliseconds timeout);

// Meets the others at the store, finds out who shares a host, and makes the
// backend. Errors begin with the group and this rank.
//
// With a watch this rank tells the job when it fails, and ends with Aborted
// soon after another rank of the job has: what it was at (a wait for a rank
// that is gone, on the store or on a connection) is left to a thread that
// stays behind.
absl::StatusOr<c10::intrusive_ptr<c10d::ProcessGroup>> ConnectGroup(
    const GroupMember& member, const CommunicatorOptions& options,
    JobWatch* watch);

// How long a failed rank waits for the others to say where they failed.
std::chrono::milliseconds Patience(std::chrono::milliseconds timeout);

}  // namespace tandem

#endif  // TANDEM_CORE_COMM_GROUP_CONNECTION_H_
