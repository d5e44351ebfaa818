// Paths as the user means them.

#ifndef TANDEM_CORE_FILES_USER_PATH_H_
#define TANDEM_CORE_FILES_USER_PATH_H_

#include <string>

#include "absl/strings/string_view.h"

namespace tandem {

// `path`, a path that a user typed, from where the user stands. `bazel run`
// starts a program elsewhere and says in BUILD_WORKING_DIRECTORY where it was
// called: a relative path is put after that. "~" and a leading "~/" become
// $HOME and $HOME/, for shells do not expand them within --flag=~/path. An
// absolute path, any other one that begins with "~" and an empty one stay as
// they are; so does a relative one when BUILD_WORKING_DIRECTORY is not set, and
// "~" without HOME.
std::string UserPath(absl::string_view path);

}  // namespace tandem

#endif  // TANDEM_CORE_FILES_USER_PATH_H_
