// File targets: where a path that a user named for output really leads.

#ifndef TANDEM_CORE_FILES_FILE_TARGET_H_
#define TANDEM_CORE_FILES_FILE_TARGET_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem {

struct FileTarget {
  // With symbolic links followed: a file, perhaps one that is not there yet.
  std::string path;
  // What can only be written to, not replaced: a character device (/dev/null),
  // a named pipe, or a file that is open in this process (/dev/stdout).
  bool in_place = false;
};

// InvalidArgument for what takes no file's contents: a folder, a disk, a
// socket, or links that go round in a circle.
absl::StatusOr<FileTarget> ResolveFileTarget(const std::string& path);

// A descriptor that writes to a target in place, to be closed by the caller:
// for an open file a second one of the same position. FailedPrecondition for a
// named pipe from which nobody reads.
absl::StatusOr<int> OpenInPlace(const FileTarget& target);

// "run" of "run/model.bin", "." of "model.bin".
std::string ParentDirectory(const std::string& path);

// Whether it is the name of a file in a folder, and no way to somewhere else.
bool IsFileName(absl::string_view name);

}  // namespace tandem

#endif  // TANDEM_CORE_FILES_FILE_TARGET_H_
