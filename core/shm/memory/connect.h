// Connection of the ranks of one host: how they find each other and come to
// share memory.

#ifndef TANDEM_CORE_SHM_MEMORY_CONNECT_H_
#define TANDEM_CORE_SHM_MEMORY_CONNECT_H_

#include <sched.h>
#include <sys/types.h>

#include <chrono>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "core/shm/memory/shared_memory.h"
#include "core/store/store.h"

namespace tandem {

// A descriptor of another process that all groups of this one share: a job with
// many groups needs one for each process, not one for each process and group.
using SharedFd = std::shared_ptr<const OwnedFd>;

// The descriptor that somebody here holds already of the same file (then `fd`
// is closed), or else `fd`. Thread-safe.
SharedFd ShareFile(OwnedFd fd);

// A pidfd, which becomes readable when the process ends. Null for this process
// itself, for 0, and on a kernel that has none. Thread-safe.
SharedFd ShareProcess(pid_t pid);

struct ShmPeer {
  OwnedFd socket;  // closed by the kernel when that rank ends
  SharedFd arena;  // ShmArena of its process
  pid_t pid = 0;   // 0: in a pid namespace that this process does not see
};

struct ShmConnections {
  OwnedFd segment;             // ShmSegment
  std::vector<ShmPeer> peers;  // by rank; this rank's own entry is empty
  // Has every rank a core of its own, those included that were with this one in
  // an earlier group? By this group's affinity masks and this process's
  // CpuQuota().
  bool core_for_each = false;
  // Has every rank two?
  bool two_cores_for_each = false;
};

// Connects every pair of `size` ranks of this host, which meet on `store`: a
// random socket name for each rank, and what to say there, is all that stands
// there. Others that connect are dropped (core/shm/memory/local_socket.h).
// `arena` is this rank's. Errors name the rank that could not be reached (by
// `names`, unless it is empty): DeadlineExceeded, Unavailable, PermissionDenied
// (another user's process).
absl::StatusOr<ShmConnections> ConnectShm(const StorePtr& store, int rank,
                                          int size, int arena,
                                          std::chrono::milliseconds timeout,
                                          const std::vector<int>& names = {});

}  // namespace tandem

#endif  // TANDEM_CORE_SHM_MEMORY_CONNECT_H_
