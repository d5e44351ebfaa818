#include "core/sim/nccl/deadlock.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tandem {
namespace sim {
namespace {

using nlohmann::json;

json ToJson(const CommunicatorWait& wait) {
  return {{"communicator", wait.communicator},
          {"state", static_cast<int>(wait.state)},
          {"operation", wait.operation},
          {"number", wait.number},
          {"peers", wait.peers},
          {"differs", wait.differs},
          {"seconds", wait.seconds}};
}

CommunicatorWait FromJson(const json& text) {
  CommunicatorWait wait;
  wait.communicator = text.at("communicator").get<std::string>();
  wait.state =
      static_cast<CommunicatorWait::State>(text.at("state").get<int>());
  wait.operation = text.at("operation").get<std::string>();
  wait.number = text.at("number").get<int64_t>();
  wait.peers = text.at("peers").get<std::vector<int>>();
  wait.differs = text.at("differs").get<std::string>();
  wait.seconds = text.at("seconds").get<double>();
  return wait;
}

}  // namespace

std::string RankWaits::Encode() const {
  json all = {{"rank", rank},
              {"waiting_threads", waiting_threads},
              {"communicators", json::array()}};
  for (const CommunicatorWait& each : communicators) {
    all["communicators"].push_back(ToJson(each));
  }
  // A group's name need not be UTF-8.
  return all.dump(-1, ' ', false, json::error_handler_t::replace);
}

RankWaits DecodeRankWaits(const std::string& text) {
  RankWaits waits;
  try {
    const json all = json::parse(text);
    waits.rank = all.at("rank").get<int>();
    waits.waiting_threads = all.at("waiting_threads").get<int>();
    for (const json& each : all.at("communicators")) {
      waits.communicators.push_back(FromJson(each));
    }
  } catch (const json::exception&) {
    return {};
  }
  return waits;
}

namespace {

using State = CommunicatorWait::State;
using Node = std::pair<int, std::string>;  // a rank, a communicator

class WaitGraph {
 public:
  WaitGraph(const std::map<int, RankWaits>& ranks, double patience,
            bool certain_alone)
      : certain_alone_(certain_alone) {
    for (const auto& [rank, says] : ranks) {
      if (says.waiting_threads > 0) host_waits_.insert(rank);
      for (const CommunicatorWait& each : says.communicators) {
        if (each.seconds < patience || !Waits(each)) continue;
        waits_[{rank, each.communicator}] = &each;
      }
    }
  }

  const std::map<Node, const CommunicatorWait*>& waits() const {
    return waits_;
  }

  // The nodes of a circle, in the order in which they wait; empty: there is
  // none.
  std::vector<Node> FindCircle() const {
    std::set<Node> done;
    for (const auto& each : waits_) {
      std::vector<Node> path;
      if (Follow(each.first, &path, &done)) return path;
    }
    return {};
  }

 private:
  static bool Waits(const CommunicatorWait& wait) {
    return wait.state == State::kPeers || wait.state == State::kInputs;
  }

  // Another communicator of the rank, which waits for other ranks, may be what
  // `node` waits behind: streams are worked off in order, so that at the end of
  // those that wait for each other on one rank stands one that does not.
  void AddPeers(const Node& node, std::vector<Node>* next) const {
    if (certain_alone_) return;
    for (const auto& [other, wait] : waits_) {
      if (other.first == node.first && other != node &&
          wait->state == State::kPeers) {
        next->push_back(other);
      }
    }
  }

  // The nodes that `node`, which waits, waits for.
  std::vector<Node> Successors(const Node& node) const {
    std::vector<Node> next;
    const CommunicatorWait& wait = *waits_.at(node);
    if (wait.state == State::kInputs) {
      AddPeers(node, &next);
      return next;
    }
    for (const int peer : wait.peers) {
      const Node there = {peer, node.second};
      if (waits_.count(there) > 0) {
        next.push_back(there);
      } else if (host_waits_.count(peer) > 0) {
        AddPeers(there, &next);
      }
    }
    return next;
  }

  // Depth first; `path` ends as the circle, if there is one.
  bool Follow(const Node& node, std::vector<Node>* path,
              std::set<Node>* done) const {
    const auto before = std::find(path->begin(), path->end(), node);
    if (before != path->end()) {
      path->erase(path->begin(), before);
      return true;
    }
    if (!done->insert(node).second) return false;
    path->push_back(node);
    for (const Node& each : Successors(node)) {
      if (Follow(each, path, done)) return true;
    }
    path->pop_back();
    return false;
  }

  const bool certain_alone_;
  std::map<Node, const CommunicatorWait*> waits_;
  std::set<int> host_waits_;
};

std::string Describe(const Node& node, const CommunicatorWait& wait) {
  const std::string whom =
      wait.state == State::kInputs
          ? "what its device computes"
          : absl::StrCat("rank ", absl::StrJoin(wait.peers, ", "));
  return absl::StrCat("rank ", node.first, " waits in \"", node.second,
                      "\" for ", whom, " (operation ", wait.number + 1, ": ",
                      wait.operation, ")");
}

std::optional<Deadlock> FindDifference(const WaitGraph& graph) {
  for (const auto& [node, wait] : graph.waits()) {
    if (wait->differs.empty()) continue;
    return Deadlock{
        true, absl::StrCat("rank ", node.first, " is at operation ",
                           wait->number + 1, " of \"", node.second, "\", ",
                           wait->operation, "; ", wait->differs)};
  }
  return std::nullopt;
}

std::optional<Deadlock> FindCircle(const WaitGraph& graph, bool is_certain) {
  const std::vector<Node> circle = graph.FindCircle();
  if (circle.empty()) return std::nullopt;
  std::vector<std::string> parts;
  for (const Node& each : circle) {
    parts.push_back(Describe(each, *graph.waits().at(each)));
  }
  return Deadlock{is_certain, absl::StrJoin(parts, "; ")};
}

}  // namespace

std::optional<Deadlock> FindDeadlock(const std::map<int, RankWaits>& ranks,
                                     double patience) {
  const WaitGraph certain(ranks, patience, /*certain_alone=*/true);
  if (auto found = FindDifference(certain)) return found;
  if (auto found = FindCircle(certain, /*is_certain=*/true)) return found;
  return FindCircle(WaitGraph(ranks, patience, /*certain_alone=*/false),
                    /*is_certain=*/false);
}

}  // namespace sim
}  // namespace tandem
