// Store rendezvous: the node rendezvous on the job's TCPStore, which node 0's
// launcher serves. Each launcher writes there what it says of its node, twice a
// second; node 0's reads that of all, and writes the group.

#ifndef TANDEM_CORE_ELASTIC_STORE_RENDEZVOUS_H_
#define TANDEM_CORE_ELASTIC_STORE_RENDEZVOUS_H_

#include <chrono>
#include <memory>
#include <string>

#include "core/elastic/node_coordinator.h"
#include "core/elastic/node_rendezvous.h"
#include "core/elastic/rank_counts.h"

namespace tandem {

struct StoreRendezvousOptions {
  std::string host;
  int port = 0;
  int node = 0;    // --node_rank
  int nnodes = 1;  // that may come
  CoordinatorOptions coordinator;
  std::chrono::milliseconds beat = std::chrono::milliseconds(500);
  // How long a call of the store may take: longer, and node 0 is lost.
  std::chrono::milliseconds patience = std::chrono::seconds(10);
};

// Returns at once, and meets on a thread of its own: node 0's store is waited
// for until coordinator.form_timeout.
std::unique_ptr<NodeRendezvous> MeetAtStore(
    const RankCounts& counts, const StoreRendezvousOptions& options);

}  // namespace tandem

#endif  // TANDEM_CORE_ELASTIC_STORE_RENDEZVOUS_H_
