// Group creation: how a rank comes to be connected with the others of its
// group.

#ifndef TANDEM_CORE_COMM_GROUP_CONNECTION_H_
#define TANDEM_CORE_COMM_GROUP_CONNECTION_H_

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "absl/status/statusor.h"
#include "core/backend/communicator_options.h"
#include "core/health/group_member.h"
#include "core/health/job_watch.h"

namespace tandem {

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
