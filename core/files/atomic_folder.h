// Folders that are there whole or not at all.

#ifndef TANDEM_CORE_FILES_ATOMIC_FOLDER_H_
#define TANDEM_CORE_FILES_ATOMIC_FOLDER_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/base/owned_fd.h"

namespace tandem {

constexpr char kIncompleteSuffix[] = ".incomplete";

// Makes PATH.incomplete, in which files are written (core/files/atomic_file.h)
// by any number of processes, and renames it to PATH when it is complete. Until
// then, and after any failure, what PATH was stays. Destroyed without Commit,
// it removes what was written. Only a process killed in the middle leaves
// PATH.incomplete behind, which RemoveAbandonedFolders knows by its lock
// (flock) that nobody holds.
//
// Errors are those of AtomicFile. Not thread-safe.
class AtomicFolder {
 public:
  // Empty, whatever a killed process left there. The folder that PATH is in
  // must exist. Unavailable while another process writes it.
  static absl::StatusOr<std::unique_ptr<AtomicFolder>> Create(
      const std::string& path);

  ~AtomicFolder();
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;

  // To be called once, last; files are synced by then. What PATH was is
  // replaced in one step where the system can exchange two folders. Where it
  // cannot (some network file systems), there is a moment in which the old one
  // is called PATH.incomplete.old and the new one is still incomplete.
  //
  // Fault points: "folder_rename" before the rename, "folder_renamed" after it.
  absl::Status Commit();

 private:
  AtomicFolder(std::string path, OwnedFd lock);
  absl::Status Replace();

  const std::string path_;
  const std::string incomplete_;
  OwnedFd lock_;
  bool committed_ = false;
};

// "run/step-1.incomplete" of "run/step-1": where files are written.
std::string IncompleteFolder(const std::string& path);

// Removes a folder and what is in it; first of all it is called incomplete, so
// that nobody takes the rest of it for whole.
absl::Status RemoveFolder(const std::string& path);

// Removes NAME.incomplete and NAME.incomplete.old in `folder` for each NAME
// that `is_mine` takes, but for those that a living process writes; their
// names.
std::vector<std::string> RemoveAbandonedFolders(
    const std::string& folder,
    const std::function<bool(absl::string_view name)>& is_mine);

}  // namespace tandem

#endif  // TANDEM_CORE_FILES_ATOMIC_FOLDER_H_
