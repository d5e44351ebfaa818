#include "core/elastic/node_coordinator.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tandem {
namespace {

// The members of `nodes` that are not in `others`; both rise.
std::vector<int> Without(const std::vector<int>& nodes,
                         const std::vector<int>& others) {
  std::vector<int> rest;
  std::set_difference(nodes.begin(), nodes.end(), others.begin(), others.end(),
                      std::back_inserter(rest));
  return rest;
}

// "without node 1, with node 2".
std::string DescribeChange(const std::vector<int>& from,
                           const std::vector<int>& to) {
  std::vector<std::string> changes;
  const std::vector<int> gone = Without(from, to);
  const std::vector<int> come = Without(to, from);
  if (!gone.empty()) {
    changes.push_back(absl::StrCat("without ", NamesOfNodes(gone)));
  }
  if (!come.empty() && !from.empty()) {
    changes.push_back(absl::StrCat("now with ", NamesOfNodes(come)));
  }
  return absl::StrJoin(changes, ", ");
}

}  // namespace

void NodeCoordinator::Note(const std::map<int, NodeState>& states,
                           TimePoint now) {
  // While this node itself did not look (it was stopped, or its host slept) it
  // could hear of nobody.
  if (looked_at_) {
    now_ += std::min<TimePoint::duration>(now - *looked_at_,
                                          options_.gone_after / 2);
  }
  looked_at_ = now;
  for (const auto& [node, state] : states) {
    const auto known = seen_.find(node);
    const bool is_new = known == seen_.end() ||
                        known->second.state.launcher != state.launcher ||
                        known->second.state.beat != state.beat;
    if (is_new) seen_[node] = {state, now_};
  }
}

bool NodeCoordinator::IsAlive(int node) const {
  const auto known = seen_.find(node);
  return known != seen_.end() && now_ - known->second.at < options_.gone_after;
}

std::set<int> NodeCoordinator::In(Phase phase) const {
  std::set<int> nodes;
  for (const auto& [node, seen] : seen_) {
    if (seen.state.phase == phase && IsAlive(node)) nodes.insert(node);
  }
  return nodes;
}

// The nodes that would take part in the next attempt. One that starts another
// number of ranks finds that out itself.
std::set<int> NodeCoordinator::Waiting() const {
  std::set<int> nodes;
  for (const int node : In(Phase::kWaiting)) {
    if (seen_.at(node).state.ranks == options_.ranks_per_node) {
      nodes.insert(node);
    }
  }
  return nodes;
}

std::vector<int> NodeCoordinator::Choose(const std::set<int>& present) const {
  return ChooseNodes(present, {group_.nodes.begin(), group_.nodes.end()},
                     options_.ranks_per_node, counts_);
}

// Why the attempt that runs has ended; empty: it has not.
std::string NodeCoordinator::WhyOver() const {
  for (const int node : group_.nodes) {
    const NodeState& state = seen_.at(node).state;
    if (state.phase == Phase::kDone) continue;
    if (state.phase == Phase::kLeft) {
      return absl::StrCat("node ", node, " has left");
    }
    if (!IsAlive(node)) {
      return absl::StrCat("node ", node, " is gone: no sign of life for ",
                          options_.gone_after.count() / 1000.0, " s");
    }
    if (state.launcher != launchers_.at(node)) {
      return absl::StrCat("node ", node, " has been started anew");
    }
    if (state.phase == Phase::kWaiting && state.attempt > group_.attempt) {
      return absl::StrCat("the ranks of node ", node, " have ended");
    }
  }
  return "";
}

void NodeCoordinator::BeginForming(const std::string& why) {
  forming_since_ = now_;
  if (group_.order == Order::kRun) group_.why = why;
}

void NodeCoordinator::AdmitNewcomers() {
  std::set<int> present = Waiting();
  present.insert(group_.nodes.begin(), group_.nodes.end());
  const std::vector<int> nodes = Choose(present);
  if (nodes.size() <= group_.nodes.size()) return;
  group_.order = Order::kStopAtStep;
  group_.why =
      absl::StrCat(NamesOfNodes(Without(nodes, group_.nodes)), " joined");
}

void NodeCoordinator::Watch() {
  const std::string why = WhyOver();
  if (!why.empty()) {
    BeginForming(why);
  } else if (group_.order == Order::kRun) {
    AdmitNewcomers();
  }
}

std::string NodeCoordinator::DescribeArrived(
    const std::set<int>& waiting) const {
  return absl::StrCat("too few nodes: within ",
                      options_.form_timeout.count() / 1000.0, " s ",
                      NamesOfNodes({waiting.begin(), waiting.end()}),
                      " came, which start ", options_.ranks_per_node,
                      " ranks each; the job can run on ", counts_.ToString());
}

void NodeCoordinator::Run(const std::vector<int>& nodes) {
  group_ = {Order::kRun, group_.attempt + 1, nodes, options_.ranks_per_node,
            DescribeChange(group_.nodes, nodes)};
  launchers_.clear();
  for (const int node : nodes) {
    launchers_[node] = seen_.at(node).state.launcher;
  }
  forming_since_.reset();
  enough_since_.reset();
}

void NodeCoordinator::Form() {
  const std::set<int> waiting = Waiting();
  const std::vector<int> nodes = Choose(waiting);
  if (nodes.empty()) {
    enough_since_.reset();
  } else if (!enough_since_) {
    enough_since_ = now_;
  }
  const bool others_run = !In(Phase::kRunning).empty();
  if (others_run && now_ - *forming_since_ >= options_.stop_after &&
      (group_.order == Order::kRun || group_.order == Order::kStopAtStep)) {
    group_.order = Order::kStop;
  }
  const bool is_all =
      static_cast<int>(nodes.size()) * options_.ranks_per_node ==
      counts_.most();
  const bool waits_for_more = group_.attempt < 0 && !is_all && enough_since_ &&
                              now_ - *enough_since_ < options_.join_timeout;
  if (!nodes.empty() && !others_run && !waits_for_more) {
    Run(nodes);
  } else if (now_ - *forming_since_ >= options_.form_timeout) {
    End(DescribeArrived(waiting));
  }
}

const NodeGroup& NodeCoordinator::Decide(const std::map<int, NodeState>& states,
                                         TimePoint now) {
  Note(states, now);
  if (group_.order == Order::kEnd) return group_;
  if (group_.attempt < 0 && !forming_since_) forming_since_ = now_;
  if (!forming_since_) Watch();
  if (forming_since_) Form();
  return group_;
}

const NodeGroup& NodeCoordinator::End(const std::string& why) {
  group_.order = Order::kEnd;
  group_.why = why;
  return group_;
}

}  // namespace tandem
