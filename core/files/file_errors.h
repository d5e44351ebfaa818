// File errors: what the system says of a file or folder, as a Status; and the
// sync of a folder, which makes changes of names in it last.

#ifndef TANDEM_CORE_FILES_FILE_ERRORS_H_
#define TANDEM_CORE_FILES_FILE_ERRORS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tandem {

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

}  // namespace tandem

#endif  // TANDEM_CORE_FILES_FILE_ERRORS_H_
