// Ranks, as threads, that compare named values through a store. For tests.

#ifndef TANDEM_TESTS_CORE_AGREEMENT_AGREEING_RANKS_H_
#define TANDEM_TESTS_CORE_AGREEMENT_AGREEING_RANKS_H_

#include <chrono>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "core/agreement/agreement.h"
#include "core/comm/group_connection.h"
#include "core/health/group_member.h"
#include "core/store/store.h"

namespace tandem {

// What AgreeAtStore says on each rank, whose values and store are given by
// rank; a rank without a store does not take part.
inline std::vector<absl::Status> AgreeThrough(
    const std::vector<StorePtr>& stores, const std::vector<NamedValues>& values,
    std::chrono::milliseconds timeout = std::chrono::seconds(30)) {
  std::vector<absl::Status> said(stores.size());
  std::vector<std::thread> ranks;
  for (size_t r = 0; r < stores.size(); ++r) {
    if (stores[r] == nullptr) continue;
    ranks.emplace_back([&, r] {
      GroupMember member;
      member.store = stores[r];
      member.rank = static_cast<int>(r);
      member.size = static_cast<int>(stores.size());
      said[r] = AgreeAtStore(member, values[r], "settings", timeout);
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return said;
}

// The same through one HashStore.
inline std::vector<absl::Status> Agree(const std::vector<NamedValues>& values) {
  const StorePtr store = NewHashStore(std::chrono::seconds(30));
  return AgreeThrough(std::vector<StorePtr>(values.size(), store), values);
}

}  // namespace tandem

#endif  // TANDEM_TESTS_CORE_AGREEMENT_AGREEING_RANKS_H_
