// Descriptors of other processes that all groups of this one share: a job with
// many groups needs one for each process, not one for each process and group.

#ifndef TANDEM_CORE_SHM_MEMORY_PEER_DESCRIPTORS_H_
#define TANDEM_CORE_SHM_MEMORY_PEER_DESCRIPTORS_H_

#include <sys/types.h>

#include <memory>

#include "core/shm/memory/shared_memory.h"

namespace tandem {

using SharedFd = std::shared_ptr<const OwnedFd>;

// The descriptor that somebody here holds already of the same file (then `fd`
// is closed), or else `fd`. Thread-safe.
SharedFd ShareFile(OwnedFd fd);

// A pidfd, which becomes readable when the process ends. Null for this process
// itself, for 0, and on a kernel that has none. Thread-safe.
SharedFd ShareProcess(pid_t pid);

}  // namespace tandem

#endif  // TANDEM_CORE_SHM_MEMORY_PEER_DESCRIPTORS_H_
