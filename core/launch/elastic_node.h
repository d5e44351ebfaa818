// Elastic node: what a launcher does of an elastic job that has several nodes.

#ifndef TANDEM_CORE_LAUNCH_ELASTIC_NODE_H_
#define TANDEM_CORE_LAUNCH_ELASTIC_NODE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/elastic/node_group.h"
#include "core/launch/resolve_launch.h"
#include "core/launch/stop_signals.h"

namespace tandem {

// Not thread-safe.
class ElasticNode {
 public:
  // `plan`: before the first attempt.
  ElasticNode(const LaunchPlan& plan, std::unique_ptr<NodeRendezvous> nodes);

  bool is_first() const { return node_ == 0; }

  // Waits until this node is to run an attempt after plan->restarts.done, or,
  // the first time, any. Then `plan` is its place in it, and `said` a line for
  // a person. Cancelled where a signal stops it, `stop_signal`. Aborted where
  // node 0 has ended the job, with its reason, "" where the job is done.
  // Unavailable where node 0 is not heard of: waits no longer than that takes,
  // and node 0 ends a job for which too few nodes come.
  absl::Status AwaitTurn(SignalPipe& signals, LaunchPlan* plan,
                         std::string* said, int* stop_signal);
  // The group of the attempt that this node runs: kRun, kStopAtStep or kStop.
  NodeGroup Group() const;
  // Whether nodes take part in this attempt that did not in this node's last.
  bool HasNewcomers() const;
  // See NodeRendezvous.
  void Leave(bool done, const std::string& why) { nodes_->Leave(done, why); }

 private:
  bool IsTurn(const NodeGroup& group) const;
  void TakePlace(NodeGroup group, LaunchPlan* plan);

  const int node_;
  const std::unique_ptr<NodeRendezvous> nodes_;
  bool has_run_ = false;
  int first_ = 0;  // attempt that it waits for
  NodeGroup group_;
  std::vector<int> former_;
};

}  // namespace tandem

#endif  // TANDEM_CORE_LAUNCH_ELASTIC_NODE_H_
