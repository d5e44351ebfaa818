// Ranks of a benchmark spawned as processes of this machine, and ways of doing
// a thing that take turns there.

#ifndef TANDEM_TOOLS_BENCH_MICRO_SPAWNED_H_
#define TANDEM_TOOLS_BENCH_MICRO_SPAWNED_H_

#include <cstddef>
#include <functional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/store/store.h"

namespace tandem {

// Runs `work` in a process for each of `size` ranks, with one thread for
// operators and a store in a file, which goes with them. The first error.
absl::Status SpawnRanks(
    int size,
    const std::function<absl::Status(const StorePtr& store, int rank)>& work);

// Has each of `ways` timed in every round, and gives their medians. A round
// before that warms up.
absl::StatusOr<std::vector<double>> MediansInTurns(
    int rounds, size_t ways,
    absl::FunctionRef<absl::StatusOr<double>(size_t way)> time);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_MICRO_SPAWNED_H_
