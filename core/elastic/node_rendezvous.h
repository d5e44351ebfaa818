// Node rendezvous: how the launchers of an elastic job's nodes find each other,
// and agree on who runs each attempt.

#ifndef TANDEM_CORE_ELASTIC_NODE_RENDEZVOUS_H_
#define TANDEM_CORE_ELASTIC_NODE_RENDEZVOUS_H_

#include <string>

#include "absl/status/statusor.h"
#include "core/elastic/node_group.h"

namespace tandem {

// One launcher's part of it. Nothing here waits, but for Leave. Thread-safe.
class NodeRendezvous {
 public:
  virtual ~NodeRendezvous() = default;

  // This node would take part in attempt `first` (from 0) or a later one.
  virtual void Wait(int first) = 0;
  // What node 0 has decided, as far as it is known here: after Wait, a group
  // with order kRun, an attempt that is not earlier, and this node in it, is
  // for this node to run. An error, which stays, where node 0 is not heard of,
  // or does not take this node.
  virtual absl::StatusOr<NodeGroup> Group() const = 0;
  // This node runs that attempt.
  virtual void Run(int attempt) = 0;
  // This node takes part in no further one; `done`: its ranks have ended well.
  // Node 0 ends the job, and says `why` to those that wait. Waits a few seconds
  // at most, for the others to hear it.
  virtual void Leave(bool done, const std::string& why) = 0;
};

}  // namespace tandem

#endif  // TANDEM_CORE_ELASTIC_NODE_RENDEZVOUS_H_
