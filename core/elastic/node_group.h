// Node group: which nodes of an elastic job run an attempt, as node 0 has
// decided; and what each node's launcher says of itself.

#ifndef TANDEM_CORE_ELASTIC_NODE_GROUP_H_
#define TANDEM_CORE_ELASTIC_NODE_GROUP_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/elastic/rank_counts.h"

namespace tandem {

// A node is known by the number that its launcher was started with
// (--node_rank), whatever it is in a group.
struct NodeState {
  enum class Phase {
    kWaiting,  // would take part in `attempt` or a later one
    kRunning,  // takes part in `attempt`
    kDone,     // its ranks have ended well
    kLeft,     // takes part in no more
  };
  Phase phase = Phase::kWaiting;
  int attempt = 0;
  int ranks = 1;         // started by it
  int64_t launcher = 0;  // tells a node's launchers apart
  int64_t beat = 0;      // another one each time: a sign of life

  std::string Encode() const;
};

struct NodeGroup {
  enum class Order {
    kForm,        // wait: the next group is not yet there
    kRun,         // run the attempt
    kStopAtStep,  // stop after a step, with a checkpoint of it, and wait
    kStop,        // stop now, and wait
    kEnd,         // the job ends
  };
  Order order = Order::kForm;
  int attempt = -1;
  std::vector<int> nodes;  // rising; the group's node i is nodes[i]
  int ranks_per_node = 1;
  // For a person. With kRun, what is new since the last group: "without node
  // 1".
  std::string why;

  bool Has(int node) const;
  std::string Encode() const;
};

// The inverse of Encode; nothing for a text that it did not write.
std::optional<NodeState> DecodeNodeState(absl::string_view text);
std::optional<NodeGroup> DecodeNodeGroup(absl::string_view text);

// The nodes of the largest group that can be had of `present`, each with
// `ranks_per_node`: node 0, then those of `former`, then the others, by number.
// Empty where there are too few, or node 0 is not there.
std::vector<int> ChooseNodes(const std::set<int>& present,
                             const std::set<int>& former, int ranks_per_node,
                             const RankCounts& counts);

// "node 0", "nodes 0, 2 and 5".
std::string NamesOfNodes(const std::vector<int>& nodes);

// Node rendezvous: how the launchers of an elastic job's nodes find each other,
// and agree on who runs each attempt.

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

#endif  // TANDEM_CORE_ELASTIC_NODE_GROUP_H_
