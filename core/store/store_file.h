// Store file: where the ranks of a job meet without a server. What stands there
// lets one into their connections.

#ifndef TANDEM_CORE_STORE_STORE_FILE_H_
#define TANDEM_CORE_STORE_STORE_FILE_H_

#include <string>

#include "absl/status/status.h"

namespace tandem {

// Makes the file, unless it is there, so that this user alone can read and
// write it. Errors name the path and say what to do: InvalidArgument for what
// can be no file, NotFound without a folder, PermissionDenied where this
// process may not write there, FailedPrecondition where others have made the
// file or can read it, and where everybody may write in its folder, and so
// replace it. A folder of a group is taken: many users have one of their own.
absl::Status MakeStoreFile(const std::string& path);

}  // namespace tandem

#endif  // TANDEM_CORE_STORE_STORE_FILE_H_
