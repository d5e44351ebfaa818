// Store rendezvous: the node rendezvous on the job's TCPStore, which node 0's
// launcher serves. Each launcher writes there what it says of its node, twice a
// second; node 0's reads that of all, and writes the group.
//
// Node 0's launcher may be silent for a while (Ctrl-Z, a virtual machine that
// moves, a host that swaps), and a connection may break: whatever is asked of
// the store can be asked again.

#ifndef TANDEM_CORE_ELASTIC_STORE_RENDEZVOUS_H_
#define TANDEM_CORE_ELASTIC_STORE_RENDEZVOUS_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "core/elastic/node_coordinator.h"
#include "core/elastic/node_group.h"
#include "core/elastic/rank_counts.h"

namespace tandem {

struct StoreRendezvousOptions {
  std::string host;
  int port = 0;
  int node = 0;    // --node_rank
  int nnodes = 1;  // the most that may come
  CoordinatorOptions coordinator;
  std::chrono::milliseconds beat = std::chrono::milliseconds(500);
  // After how long without an answer that is told of; and how long a connection
  // that was lost is tried to be had again: longer, and node 0 is lost.
  std::chrono::milliseconds patience = std::chrono::seconds(10);
  // After how long without an answer node 0 is lost.
  std::chrono::milliseconds lost_after = std::chrono::minutes(5);
  // How long the store may take to take this node in, and to answer a call,
  // before that is tried again.
  std::chrono::milliseconds one_try = std::chrono::seconds(2);
  // Tells a person in a line that node 0 is silent, or answers again. Called on
  // a thread of the rendezvous. Null: the log is told.
  std::function<void(const std::string& line)> say;
};

// Returns at once, and meets on a thread of its own: node 0's store is waited
// for until coordinator.form_timeout.
std::unique_ptr<NodeRendezvous> MeetAtStore(
    const RankCounts& counts, const StoreRendezvousOptions& options);

}  // namespace tandem

#endif  // TANDEM_CORE_ELASTIC_STORE_RENDEZVOUS_H_
