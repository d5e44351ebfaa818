// Who is here: ranks leave their names on a store, so that what is missing can
// be told by name when a wait ends in vain.

#ifndef TANDEM_CORE_ROLL_CALL_H_
#define TANDEM_CORE_ROLL_CALL_H_

#include <chrono>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/store.h"

namespace tandem {

// Waits until all `size` ranks have called this with a store of the same keys.
// DeadlineExceeded after `timeout` names those that have not; AlreadyExists
// when `rank` has called it before.
absl::Status MeetAtStore(const StorePtr& store, int rank, int size,
                         std::chrono::milliseconds timeout);

// For the message of a failed collective: notes on the store that `rank` failed
// in `operation`, gives the others `patience` to note theirs, and returns what
// they did: "not heard of: rank 2; rank 0 failed in barrier #7". Empty when the
// store itself does not answer in time.
std::string TellFailure(const StorePtr& store, int rank, int size,
                        const std::string& operation,
                        std::chrono::milliseconds patience);

// "rank 3", "ranks 1, 2".
std::string RankList(const std::vector<int>& ranks);

}  // namespace tandem

#endif  // TANDEM_CORE_ROLL_CALL_H_
