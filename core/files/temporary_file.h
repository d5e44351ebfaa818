// Temporary files and folders beside their destination, and those that killed
// processes left behind.

#ifndef TANDEM_CORE_FILES_TEMPORARY_FILE_H_
#define TANDEM_CORE_FILES_TEMPORARY_FILE_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem {

// File errors: what the system says of a file or folder, as a Status; and the
// sync of a folder, which makes changes of names in it last.

// "cannot write PATH: ACTION: REASON", from errno: NotFound, PermissionDenied,
// ResourceExhausted (disk full, quota, file too large), else Unavailable.
absl::Status WriteError(const std::string& path, absl::string_view action);

// Whether fsync's errno says that this file system cannot sync what it was
// given, and not that something is lost.
bool CannotSync(int error);

// fsync of the folder `folder`, for the sake of `path`, which errors name. A
// file system that cannot do so is taken as it is.
absl::Status SyncFolder(const std::string& folder, const std::string& path);

// Makes the name last that a rename has just given to the complete file or
// folder at `path`. It has it whatever comes of this, and whoever reads it
// finds it: what fails (its directory's sync) is logged as a warning, and no
// error.
void SyncNewName(const std::string& path);

struct TemporaryFile {
  std::string path;     // DESTINATION.tmp.XXXXXX
  int descriptor = -1;  // to be closed by the caller
};

// Makes one for `destination`, of the mode that an ordinary new file has, and
// locks it (flock) for as long as the descriptor is open: so that nobody takes
// it for abandoned. -1 as descriptor, and errno, where that fails.
TemporaryFile MakeTemporaryFile(const std::string& destination);

// Makes DESTINATION.tmp.XXXXXX, of the mode that an ordinary new folder has.
absl::StatusOr<std::string> MakeTemporaryFolder(const std::string& destination);

// Names of temporary files and folders in `folder` whose destination's name
// `is_mine` takes.
std::vector<std::string> TemporariesIn(
    const std::string& folder,
    const std::function<bool(absl::string_view name)>& is_mine);

// Removes the temporary files in `folder` whose makers are gone (nobody holds
// their lock) and whose destination's name `is_mine` takes; how many. A file
// system without locks keeps them.
int RemoveAbandonedFiles(
    const std::string& folder,
    const std::function<bool(absl::string_view name)>& is_mine);

}  // namespace tandem

#endif  // TANDEM_CORE_FILES_TEMPORARY_FILE_H_
