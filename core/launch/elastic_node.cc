#include "core/launch/elastic_node.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/launch/launch.h"
#include "core/launch/stop_signals.h"
#include "core/process/process_end.h"

namespace tandem {
namespace {

using Order = NodeGroup::Order;

// In a line, for a person: the group, and the place of `node` in it, `launch`.
std::string Describe(const NodeGroup& group, const Launch& launch, int node) {
  const int last = launch.rank + launch.local_world_size - 1;
  const std::string ranks =
      last == launch.rank ? absl::StrCat("rank ", launch.rank)
                          : absl::StrCat("ranks ", launch.rank, " to ", last);
  return absl::StrCat("attempt ", group.attempt + 1, " has ", launch.world_size,
                      launch.world_size == 1 ? " rank on " : " ranks on ",
                      NamesOfNodes(group.nodes), group.why.empty() ? "" : ", ",
                      group.why, "; ", ranks, " on this one, node ", node);
}

}  // namespace

ElasticNode::ElasticNode(const LaunchPlan& plan,
                         std::unique_ptr<NodeRendezvous> nodes)
    : node_(plan.launch.node_rank), nodes_(std::move(nodes)) {}

bool ElasticNode::IsTurn(const NodeGroup& group) const {
  return group.order == Order::kRun && group.attempt >= first_ &&
         group.Has(node_);
}

void ElasticNode::TakePlace(NodeGroup group, LaunchPlan* plan) {
  if (has_run_) former_ = std::move(group_.nodes);
  has_run_ = true;
  group_ = std::move(group);
  Launch& launch = plan->launch;
  const auto at = std::find(group_.nodes.begin(), group_.nodes.end(), node_);
  launch.nnodes = static_cast<int>(group_.nodes.size());
  launch.node_rank = static_cast<int>(at - group_.nodes.begin());
  launch.world_size = GridWorldSize(launch.nnodes, launch.local_world_size);
  launch.rank = GridRank(launch.node_rank, launch.local_world_size, 0);
  plan->restarts.done = group_.attempt;
}

absl::Status ElasticNode::AwaitTurn(SignalPipe& signals, LaunchPlan* plan,
                                    std::string* said, int* stop_signal) {
  constexpr std::chrono::milliseconds kPoll(50);
  first_ = has_run_ ? plan->restarts.done + 1 : 0;
  nodes_->Wait(first_);
  for (;;) {
    TANDEM_ASSIGN_OR_RETURN(NodeGroup group, nodes_->Group());
    if (group.order == Order::kEnd) return absl::AbortedError(group.why);
    if (IsTurn(group)) {
      nodes_->Run(group.attempt);
      TakePlace(std::move(group), plan);
      *said = Describe(group_, plan->launch, node_);
      return absl::OkStatus();
    }
    *stop_signal = AwaitStopSignal(signals, kPoll);
    if (*stop_signal != 0) {
      return absl::CancelledError(
          absl::StrCat("stopped by ", SignalName(*stop_signal)));
    }
  }
}

NodeGroup ElasticNode::Group() const {
  NodeGroup group = group_;
  const absl::StatusOr<NodeGroup> now = nodes_->Group();
  // Ranks that lose node 0 find out by themselves, or are ending.
  if (!now.ok() || now->attempt < group_.attempt) return group;
  if (now->attempt > group_.attempt) {
    group.order = Order::kStop;
    group.why = absl::StrCat("the job is at attempt ", now->attempt + 1);
  } else if (now->order != Order::kEnd || !now->why.empty()) {
    group = *now;
    if (now->order == Order::kEnd) group.order = Order::kStop;
  }
  return group;
}

bool ElasticNode::HasNewcomers() const {
  return !former_.empty() &&
         !std::includes(former_.begin(), former_.end(), group_.nodes.begin(),
                        group_.nodes.end());
}

}  // namespace tandem
