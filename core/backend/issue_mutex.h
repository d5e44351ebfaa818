// Lock under which a process issues its collectives.

#ifndef TANDEM_CORE_BACKEND_ISSUE_MUTEX_H_
#define TANDEM_CORE_BACKEND_ISSUE_MUTEX_H_

#include "absl/synchronization/mutex.h"

namespace tandem {

// One for the process. c10d's backends of the host number what they begin in
// plain integers, by which ranks find each other (ProcessGroupGloo's tags), and
// several threads begin works of a group. Held while a collective is issued,
// never while it is waited for.
absl::Mutex& IssueMutex();

}  // namespace tandem

#endif  // TANDEM_CORE_BACKEND_ISSUE_MUTEX_H_
