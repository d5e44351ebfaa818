// Atomic folder: one that is there whole or not at all; and a folder's lock.

#ifndef TANDEM_CORE_FILES_ATOMIC_FOLDER_H_
#define TANDEM_CORE_FILES_ATOMIC_FOLDER_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/base/owned_fd.h"

namespace tandem {

// Makes PATH.tmp.XXXXXX, a folder of its own, in which files are written
// (core/files/atomic_file.h) by any number of processes, and renames it to PATH
// when it is complete. Nothing is ever replaced, and no lock is taken, which
// network file systems keep within a host or do not have: two that write PATH
// at the same time have a folder each. Destroyed without Commit, it removes
// what was written. Only a process killed in the middle leaves PATH.tmp.XXXXXX
// behind, which RemoveAbandonedFolders finds.
//
// Errors are those of AtomicFile. Not thread-safe.
class AtomicFolder {
 public:
  // The folder that PATH is in must exist. `job`, without white space, is what
  // the process works for: see RemoveAbandonedFolders.
  static absl::StatusOr<std::unique_ptr<AtomicFolder>> Create(
      const std::string& path, const std::string& job = "");

  ~AtomicFolder();
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;

  // Where files are written.
  const std::string& temporary() const { return temporary_; }

  // To be called once, last; files are synced by then. Where it is from then
  // on: PATH, or PATH.1, PATH.2, ... if something stands there that is no empty
  // folder. An error means that it is nowhere: what fails behind the rename (a
  // file system that cannot sync a folder, say) is logged.
  absl::StatusOr<std::string> Commit();

 private:
  AtomicFolder(std::string path, std::string temporary);

  const std::string path_;
  const std::string temporary_;
  bool committed_ = false;
};

// Removes a folder and what is in it; first of all it gets another name, so
// that nobody takes the rest of it for whole.
absl::Status RemoveFolder(const std::string& path);

// Removes NAME.tmp.XXXXXX in `folder` for each NAME that `is_mine` takes, where
// the process that made it has ended; where that cannot be told, for it is
// another machine's or another container's, where nothing was written in it for
// a day, or for ten minutes if it worked for `job` (which goes on here, so no
// longer there, or not for long). Their names.
std::vector<std::string> RemoveAbandonedFolders(
    const std::string& folder,
    const std::function<bool(absl::string_view name)>& is_mine,
    const std::string& job = "");

// Folder lock: one process at a time has a folder to itself. Locks the folder
// itself, so that nothing of the lock is left in it, for as long as the
// descriptor is open: at most as long as this process lives. AlreadyExists
// where another one has it for longer than `patience`. No descriptor, and no
// lock, on a file system that has none; on a network file system it is this
// host's alone.
absl::StatusOr<OwnedFd> LockFolder(const std::string& folder,
                                   std::chrono::milliseconds patience);

}  // namespace tandem

#endif  // TANDEM_CORE_FILES_ATOMIC_FOLDER_H_
