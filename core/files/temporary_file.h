// Temporary files and folders beside their destination, and those that killed
// processes left behind.

#ifndef TANDEM_CORE_FILES_TEMPORARY_FILE_H_
#define TANDEM_CORE_FILES_TEMPORARY_FILE_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem {

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
