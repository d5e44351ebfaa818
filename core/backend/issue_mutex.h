// Lock under which a process issues its collectives.

#ifndef TANDEM_CORE_BACKEND_ISSUE_MUTEX_H_
#define TANDEM_CORE_BACKEND_ISSUE_MUTEX_H_

#include "absl/synchronization/mutex.h"

namespace tandem {

// One for the process: LibTorch's flight recorder, which all groups share,
// looks its map of groups up without a lock (LibTorch 2.11). Held while a
// collective is issued, never while it is waited for.
absl::Mutex& IssueMutex();

}  // namespace tandem

#endif  // TANDEM_CORE_BACKEND_ISSUE_MUTEX_H_
