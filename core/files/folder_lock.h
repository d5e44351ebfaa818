// Folder lock: one process at a time has a folder to itself.

#ifndef TANDEM_CORE_FILES_FOLDER_LOCK_H_
#define TANDEM_CORE_FILES_FOLDER_LOCK_H_

#include <chrono>
#include <string>

#include "absl/status/statusor.h"
#include "core/base/owned_fd.h"

namespace tandem {

// Locks the folder itself, so that nothing of the lock is left in it, for as
// long as the descriptor is open: at most as long as this process lives.
// AlreadyExists where another one has it for longer than `patience`. No
// descriptor, and no lock, on a file system that has none; on a network file
// system it is this host's alone.
absl::StatusOr<OwnedFd> LockFolder(const std::string& folder,
                                   std::chrono::milliseconds patience);

}  // namespace tandem

#endif  // TANDEM_CORE_FILES_FOLDER_LOCK_H_
