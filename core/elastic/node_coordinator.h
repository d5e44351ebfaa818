// Node coordinator: node 0's decisions about which nodes run an elastic job's
// attempts. What torchrun's rendezvous decides among agents.

#ifndef TANDEM_CORE_ELASTIC_NODE_COORDINATOR_H_
#define TANDEM_CORE_ELASTIC_NODE_COORDINATOR_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/elastic/node_group.h"
#include "core/elastic/rank_counts.h"

namespace tandem {

struct CoordinatorOptions {
  int ranks_per_node = 1;
  // How long the first attempt waits for more nodes once there are enough;
  // torchrun's last_call_timeout.
  std::chrono::milliseconds join_timeout = std::chrono::seconds(30);
  // How long an attempt waits for enough of them; torchrun's join_timeout.
  std::chrono::milliseconds form_timeout = std::chrono::minutes(10);
  // After how long without a sign of life a node is gone.
  std::chrono::milliseconds gone_after = std::chrono::seconds(10);
  // How long ranks that lost others have to find out by themselves: their own
  // words are better.
  std::chrono::milliseconds stop_after = std::chrono::seconds(5);
};

// Told what every node says, and when, it answers with the group of now:
//
// - The first attempt has all nodes, or those that have come `join_timeout`
//   after there were enough.
// - An attempt ends when a node of it waits again, has left, or is gone; then
//   the others stop, too.
// - The next has all nodes that wait by the time that nobody runs any more.
// - A node that comes while an attempt runs, and with which there would be more
//   ranks, has it stop after a step.
//
// Pure; not thread-safe.
class NodeCoordinator {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  NodeCoordinator(RankCounts counts, const CoordinatorOptions& options)
      : counts_(std::move(counts)), options_(options) {
    group_.ranks_per_node = options_.ranks_per_node;
  }

  // `states`: by node, of those that have ever said anything; node 0's too.
  const NodeGroup& Decide(const std::map<int, NodeState>& states,
                          TimePoint now);
  // There are no further attempts.
  const NodeGroup& End(const std::string& why);

 private:
  struct Seen {
    NodeState state;
    TimePoint at;
  };
  using Phase = NodeState::Phase;
  using Order = NodeGroup::Order;

  void Note(const std::map<int, NodeState>& states, TimePoint now);
  bool IsAlive(int node) const;
  // The nodes that are alive and in that phase.
  std::set<int> In(Phase phase) const;
  std::set<int> Waiting() const;
  std::vector<int> Choose(const std::set<int>& present) const;
  std::string WhyOver() const;
  void Watch();
  void AdmitNewcomers();
  void BeginForming(const std::string& why);
  void Form();
  void Run(const std::vector<int>& nodes);
  std::string DescribeArrived(const std::set<int>& waiting) const;

  const RankCounts counts_;
  const CoordinatorOptions options_;
  std::map<int, Seen> seen_;
  std::map<int, int64_t> launchers_;  // of the group
  std::optional<TimePoint> looked_at_;
  TimePoint now_;  // of a clock that stands while nobody looks
  std::optional<TimePoint> forming_since_;
  std::optional<TimePoint> enough_since_;
  NodeGroup group_;
};

}  // namespace tandem

#endif  // TANDEM_CORE_ELASTIC_NODE_COORDINATOR_H_
