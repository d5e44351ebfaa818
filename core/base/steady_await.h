// Await with a timeout by the steady clock, which nobody sets.
//
// absl::Mutex::AwaitWithTimeout waits until a time of the host's clock: set
// forwards (by hand, by a time server's first answer), it would end every wait.

#ifndef TANDEM_CORE_BASE_STEADY_AWAIT_H_
#define TANDEM_CORE_BASE_STEADY_AWAIT_H_

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tandem {

// Waits until `condition` holds, `timeout` at most; whether it then does. The
// caller holds `mutex`, which is free while it waits, as with Abseil's.
//
// Where the clock is set back meanwhile, a wait whose condition does not come
// ends later by as much.
bool AwaitSteadily(absl::Mutex& mutex, const absl::Condition& condition,
                   absl::Duration timeout) ABSL_SHARED_LOCKS_REQUIRED(mutex);

}  // namespace tandem

#endif  // TANDEM_CORE_BASE_STEADY_AWAIT_H_
