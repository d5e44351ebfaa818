// Ranks, as threads, that compare named values through a store. For tests.

#ifndef TANDEM_TESTS_CORE_AGREEMENT_AGREEING_RANKS_H_
#define TANDEM_TESTS_CORE_AGREEMENT_AGREEING_RANKS_H_

#include <chrono>
#include <vector>

#include "absl/status/status.h"
#include "core/agreement/agreement.h"
#include "core/store/store.h"

namespace tandem {

// What AgreeAtStore says on each rank, whose values and store are given by
// rank; a rank without a store does not take part.
std::vector<absl::Status> AgreeThrough(
    const std::vector<StorePtr>& stores, const std::vector<NamedValues>& values,
    std::chrono::milliseconds timeout = std::chrono::seconds(30));

// The same through one HashStore.
std::vector<absl::Status> Agree(const std::vector<NamedValues>& values);

}  // namespace tandem

#endif  // TANDEM_TESTS_CORE_AGREEMENT_AGREEING_RANKS_H_
