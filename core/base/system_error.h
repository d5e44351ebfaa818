// System errors, with the limit that they may speak of.

#ifndef TANDEM_CORE_BASE_SYSTEM_ERROR_H_
#define TANDEM_CORE_BASE_SYSTEM_ERROR_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tandem {

// absl::ErrnoToStatus; where no more files can be opened, the limit that can be
// raised stands behind it.
absl::Status SystemError(int error, absl::string_view what);

// The same of a thread or a process that could not be started: of threads and
// processes.
absl::Status StartError(int error, absl::string_view what);

}  // namespace tandem

#endif  // TANDEM_CORE_BASE_SYSTEM_ERROR_H_
