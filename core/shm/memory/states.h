// Rank states: what to say of ranks that do not come.

#ifndef TANDEM_CORE_SHM_MEMORY_STATES_H_
#define TANDEM_CORE_SHM_MEMORY_STATES_H_

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "core/shm/memory/segment.h"

namespace tandem {

// Fails with Unavailable when a rank for which `matters` holds is no longer
// present: "rank 2 (pid 123) died", "rank 1 gave up: REASON", "rank 0 left the
// group", in this order of importance. `me` is this rank: when it gave up
// itself, that is told first.
absl::Status CheckPresence(const ShmSegment& segment, int me,
                           absl::FunctionRef<bool(int rank)> matters);

// "rank 2 (pid 123)", "ranks 2 (pid 123), 3 (pid 124)"; of many the first.
std::string NamesOfRanks(const ShmSegment& segment,
                         const std::vector<int>& ranks);

}  // namespace tandem

#endif  // TANDEM_CORE_SHM_MEMORY_STATES_H_
