#include "tests/core/agreement/agreeing_ranks.h"

#include <thread>

#include "core/agreement/store_agreement.h"
#include "core/health/group_member.h"

namespace tandem {

std::vector<absl::Status> AgreeThrough(const std::vector<StorePtr>& stores,
                                       const std::vector<NamedValues>& values,
                                       std::chrono::milliseconds timeout) {
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

std::vector<absl::Status> Agree(const std::vector<NamedValues>& values) {
  const StorePtr store = NewHashStore(std::chrono::seconds(30));
  return AgreeThrough(std::vector<StorePtr>(values.size(), store), values);
}

}  // namespace tandem
